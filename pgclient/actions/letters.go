package actions

// This file plans and applies what is done to dead letters of all sources. The
// dry run of the schema's functions is the preview: one predicate for both.

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

func letterActions() []entry {
	letters := func(a queue.Action) entry {
		a.Panes, a.Noun, a.Danger, a.Role, a.Reason = []queue.PaneID{queue.PaneDead}, "dead letter", queue.DangerMany, "dead_letter_operator", true
		a.Targets.Name, a.Targets.Many = "ID", true
		return entry{Action: a, plan: planLetters, apply: applyLetters}
	}
	selected := queue.Targets{Instead: "filter", List: "dlq"}
	return []entry{
		letters(queue.Action{
			ID: queue.ActRequeue, Words: "requeue", Key: "R", Verb: "Requeue", Undo: "qtop undo ID… (until the first attempt; an event stays routed)", Targets: selected,
			Help: "make one new saga or job per dead letter, or route its event once more", Function: "public.fn_dead_letter_requeue(bigint[],text,text,boolean)",
		}),
		letters(queue.Action{
			ID: queue.ActResolve, Words: "resolve", Key: "C", Verb: "Close", Opposite: queue.ActReopen, Targets: selected,
			Help: "close a dead letter with a resolution, without sending it", Function: "public.fn_dead_letter_resolve(bigint[],text,text,text,boolean)",
			Args: []queue.Arg{{
				Name: "resolution", Label: "Resolution", Default: "abandoned", Required: true,
				Choices: []string{"abandoned", "delivered_otherwise", "duplicate"}, Help: "why it need not be sent",
			}},
		}),
		letters(queue.Action{
			ID: queue.ActReopen, Words: "reopen", Verb: "Reopen", Opposite: queue.ActResolve,
			Help: "open a closed dead letter again", Function: "public.fn_dead_letter_reopen(bigint[],text,text,boolean)",
		}),
		letters(queue.Action{
			ID: queue.ActUndoRequeue, Words: "undo", Key: "U", Verb: "Undo requeue of", Opposite: queue.ActRequeue,
			Help: "recall a requeued letter whose saga has no job yet", Function: "public.fn_dead_letter_requeue_undo(bigint[],text,text,boolean)",
		}),
	}
}

// shownOutcomes bounds the per-id outcomes that a plan carries to a screen.
const shownOutcomes = 1000

// letterSource is what differs between the sources of dead letters.
type letterSource struct {
	name, prefix string // of the source; of its ids, as the console writes them
	array        string // the type of its ids
	from, id     string // its letters, and their id
	order        string // in which a bulk operation takes them
	bulk         string // the kind of the operation that puts them back
	otherwise    string // what it calls delivered otherwise
	// tell says where they would go.
	tell  func(*Planner, context.Context, *queue.Plan, string, ...any) error
	calls map[queue.ActionID]string // what it cannot do has none
}

// letterSources are webhooks, jobs and events, in the order of a filtersql.DeadSelection.
func letterSources() [3]letterSource {
	return [3]letterSource{
		{"webhook", "", "bigint[]", filtersql.DeadFrom, "d.id", "d.id", "requeue_webhook", "delivered_otherwise", (*Planner).breakdown, map[queue.ActionID]string{
			queue.ActRequeue: "fn_dead_letter_requeue", queue.ActResolve: "fn_dead_letter_resolve",
			queue.ActReopen: "fn_dead_letter_reopen", queue.ActUndoRequeue: "fn_dead_letter_requeue_undo",
		}},
		{"job", parseid.JobPrefix, "uuid[]", filtersql.DeadJobFrom, "d.dead_letter_id", byDeath, "replay_job", "done_otherwise", (*Planner).jobBreakdown, map[queue.ActionID]string{
			queue.ActRequeue: "fn_job_dead_letter_replay", queue.ActResolve: "fn_job_dead_letter_resolve",
			queue.ActReopen: "fn_job_dead_letter_reopen", queue.ActUndoRequeue: "fn_job_dead_letter_replay_undo",
		}},
		{"event", parseid.EventPrefix, "uuid[]", filtersql.DeadEventFrom, "d.dead_letter_id", byDeath, "replay_event", "done_otherwise", (*Planner).eventBreakdown, map[queue.ActionID]string{
			queue.ActRequeue: "fn_iu_route_dead_letter_replay", queue.ActResolve: "fn_iu_route_dead_letter_resolve",
			queue.ActReopen: "fn_iu_route_dead_letter_reopen",
		}},
	}
}

const byDeath = "d.last_failed_at, d.dead_letter_id"

// given is the clause for letters that were named one by one.
func (s letterSource) given() string {
	return " WHERE " + s.id + " = ANY ($1::text[]::" + s.array + ")"
}

// call is the statement of an action on letters of the source.
func (s letterSource) call(r queue.Request, ids []string, dry bool) (sql string, args []any) {
	sql, args = "SELECT public."+s.calls[r.Action]+"($1::text[]::"+s.array, []any{ids, r.Actor, r.Reason, dry}
	if r.Action != queue.ActResolve {
		return sql + ", $2, $3, $4)", args
	}
	why := r.Args["resolution"]
	if why == "done_otherwise" || why == "delivered_otherwise" { // the sources say the same with different words
		why = s.otherwise
	}
	return sql + ", $5, $3, $2, $4)", append(args, why)
}

// letterIDs sorts ids by their source.
func letterIDs(targets []string) (ids [3][]string, err error) {
	for _, t := range targets {
		var id string
		source := 0
		switch {
		case parseid.IsJobLetter(t):
			source = 1
			id, err = parseid.UUID(t, "job dead letter", parseid.JobPrefix)
		case parseid.IsEventLetter(t):
			source = 2
			id, err = parseid.UUID(t, "event dead letter", parseid.EventPrefix)
		default:
			var n int64
			n, err = parseid.Webhook(t)
			id = strconv.FormatInt(n, 10)
		}
		if err != nil {
			return ids, err
		}
		ids[source] = append(ids[source], id)
	}
	return ids, nil
}

// lettersAnswer is what the functions together answered.
type lettersAnswer struct {
	results []queue.Outcome
	auditID int64  // of the last row written
	refused string // set when nothing at all could be done
	rule    string
}

// letters runs the functions of all sources in one transaction: the request is
// done, or it is not. One flag governs all, so the first refusal is the answer;
// should it change between two of them, all is taken back.
func (c *Planner) letters(ctx context.Context, r queue.Request, dry bool) (lettersAnswer, error) {
	ids, err := letterIDs(r.Targets)
	if err != nil {
		return lettersAnswer{}, err
	}
	errRefused := errors.New("refused")
	var out lettersAnswer
	err = pgx.BeginFunc(ctx, c.act, func(tx pgx.Tx) error {
		for i, s := range letterSources() {
			switch {
			case len(ids[i]) == 0:
				continue
			case s.calls[r.Action] == "":
				out.results = append(out.results, stayRouted(ids[i])...)
				continue
			}
			var a answer
			sql, args := s.call(r, ids[i], dry)
			if err := tx.QueryRow(ctx, sql, args...).Scan(&a); err != nil {
				return err
			}
			if a.Refused {
				begun := len(out.results) > 0
				out = lettersAnswer{refused: a.Reason, rule: a.Rule, auditID: a.AuditID}
				if begun {
					out.auditID = 0
					return errRefused
				}
				return nil
			}
			out.auditID = a.AuditID
			for _, o := range a.outcomes(s.prefix) {
				o.Outcome = oneWord(o.Outcome)
				out.results = append(out.results, o)
			}
		}
		return nil
	})
	if errors.Is(err, errRefused) {
		err = nil
	}
	return out, err
}

// stayRouted answers for events that were routed again: an attempt is what a
// recipient reads, and cannot be unread.
func stayRouted(events []string) (out []queue.Outcome) {
	for _, id := range events {
		out = append(out, queue.Outcome{ID: queue.EventLetter(id), Outcome: "skipped", Why: queue.Clean("what was routed cannot be taken back: its recipients have it")})
	}
	return out
}

// oneWord is the outcome as a request says it, whatever the source: replaying
// is what requeueing is called for a job.
func oneWord(outcome string) string {
	switch outcome {
	case "replayed":
		return "requeued"
	case "would_replay":
		return "would_requeue"
	case "would_replay_undo":
		return "would_requeue_undo"
	}
	return outcome
}

func planLetters(ctx context.Context, c *Planner, p *queue.Plan) error {
	if len(p.Request.Targets) == 0 {
		ids, err := c.freeze(ctx, p.Request.Filter)
		if err != nil {
			return err
		}
		p.Request.Targets = ids
	}
	if len(p.Request.Targets) == 0 {
		return refuse(p, "empty", "nothing matches")
	}
	a, err := c.letters(ctx, p.Request, true)
	if err != nil {
		return err
	}
	if a.refused != "" {
		return refuse(p, a.rule, a.refused)
	}
	whys := tally(p, a.results)
	say(p, "dead letters", "%d of %d", p.Count, len(a.results))
	ids, err := letterIDs(p.Request.Targets)
	if err != nil {
		return err
	}
	var sources []string
	for i, s := range letterSources() {
		if len(ids[i]) == 0 {
			continue
		}
		sources = append(sources, s.name+"s")
		if err := s.tell(c, ctx, p, s.given(), ids[i]); err != nil {
			return err
		}
	}
	if len(sources) > 1 {
		say(p, "audit", "%s rows, one for the %s; the result names the last", []string{"two", "three"}[len(sources)-2], strings.Join(sources, " and one for the "))
	}
	return whys.end(p, "none of them can be "+pastOf(p.Request.Action))
}

// whys are the reasons for which ids are left out.
type whys struct {
	order []string
	n     map[string]int
}

// tally counts what a dry run would do, keeps the first outcomes for a screen
// and groups the reasons of the rest.
func tally(p *queue.Plan, all []queue.Outcome) whys {
	w := whys{n: map[string]int{}}
	for _, r := range all {
		if strings.HasPrefix(r.Outcome, "would_") {
			p.Count++
		} else {
			p.Skipped++
			why := r.Why.String()
			if w.n[why]++; w.n[why] == 1 {
				w.order = append(w.order, why)
			}
		}
		if len(p.Results) < shownOutcomes {
			p.Results = append(p.Results, r)
		}
	}
	return w
}

func (w whys) lines(p *queue.Plan) {
	for i, why := range w.order {
		if i == 5 {
			say(p, "skipped", "+%d more reasons", len(w.order)-i)
			break
		}
		say(p, "skipped", "%d: %s", w.n[why], why)
	}
}

func (w whys) end(p *queue.Plan, none string) error {
	w.lines(p)
	if p.Count == 0 {
		return refuse(p, "skipped", none+": "+strings.Join(w.order[:min(3, len(w.order))], "; "))
	}
	return nil
}

func pastOf(a queue.ActionID) string {
	switch a {
	case queue.ActResolve:
		return "closed"
	case queue.ActReopen:
		return "reopened"
	case queue.ActUndoRequeue:
		return "recalled"
	default:
		return "requeued"
	}
}

// freeze turns a filter into the ids that match now; an empty one is refused.
func (c *Planner) freeze(ctx context.Context, filter string) (ids []string, err error) {
	s, err := filtersql.Dead(filter)
	if err != nil {
		return nil, err
	}
	if s.Filter.Empty() {
		return nil, emptyFilter("code:HTTP_503 endpoint:hooks.acme*")
	}
	for i, b := range [...]*filtersql.Builder{s.Hooks, s.Jobs, s.Events} {
		x := letterSources()[i]
		some, err := pgrow.Column[string](ctx, c.act, "SELECT '"+x.prefix+"' || "+x.id+" FROM "+x.from+b.Clause()+" ORDER BY "+x.id, b.Args...)
		if err != nil {
			return nil, err
		}
		ids = append(ids, some...)
	}
	return ids, nil
}

func emptyFilter(example string) error {
	return queue.NewError(queue.KindUsage, "an empty filter selects everything", "--filter", "say what you mean, such as "+example)
}

func applyLetters(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	a, err := c.letters(ctx, p.Request, false)
	if err != nil {
		return err
	}
	res.AuditID, res.Refused = a.auditID, a.refused
	record(res, a.results)
	return nil
}
