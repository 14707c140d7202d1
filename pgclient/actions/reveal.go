package actions

// Revealing a payload is an action: its audit row is committed before the payload is shown.

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/queue"
)

func revealActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActReveal, Words: "reveal", Key: "V", Panes: []queue.PaneID{queue.PaneDead, queue.PaneQueues}, Verb: "Reveal",
			Help: "show a payload with its secrets for 30 seconds; an audit row is written first", Twin: "qtop dlq show ID --reveal --reason R",
			Spellings: []string{"dlq show --reveal", "job show --reveal"},
			Targets:   queue.Targets{Name: "ID"},
			Danger:    queue.DangerOne, Function: "public.fn_payload_reveal(text,text,text,text)", Role: "dead_letter_operator", Reason: true,
		}, plan: planReveal, apply: applyReveal, command: revealCommand}, // as a verb, this action is the flag --reveal of dlq show or job show
	}
}

func planReveal(ctx context.Context, c *Planner, p *queue.Plan) error {
	kind, key, err := parseid.Payload(p.Request.Targets[0])
	if err != nil {
		return err
	}
	from := map[string]string{
		"dead_letter": "public.dead_letters WHERE id = $1::text::bigint", "job_dead_letter": "public.job_dead_letter WHERE dead_letter_id = $1::text::uuid",
		"event_dead_letter": "public.iu_route_dead_letter WHERE dead_letter_id = $1::text::uuid", "job": "public.v_job WHERE job_id = $1::text::uuid",
	}[kind]
	there := true
	err = c.act.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM "+from+")", key).Scan(&there)
	var pg *pgconn.PgError
	if err != nil && !(errors.As(err, &pg) && pg.Code == "42501") { // a role may have the right to reveal but not to select
		return err
	}
	if !there {
		return refuse(p, "not_found", "there is no dead letter or job with a payload under the id "+p.Request.Targets[0]+": it may have been removed after its retention")
	}
	p.Count = 1
	name, err := c.payloadName(ctx, kind, key)
	if err != nil {
		return err
	}
	p.Lines = append(p.Lines,
		line("payload of", "%s (%s)", name, p.Request.Targets[0]),
		line("shown", "with its secrets, on this screen only, for %s", queue.RevealFor),
		line("audit", "your name, the time and the reason, recorded before the payload is shown"))
	return nil
}

// payloadName returns the name of the job or event that the payload belongs to; if the login may
// not read that, only its kind.
func (c *Planner) payloadName(ctx context.Context, kind, key string) (string, error) {
	name, of := "q.job_kind || ' in ' || q.event_domain", "FROM public.v_job q WHERE q.job_id = $1::text::uuid"
	for i, source := range []string{"dead_letter", "job_dead_letter", "event_dead_letter"} {
		if s := deadLetterSources()[i]; source == kind {
			name, of = s.title(), "FROM "+s.from+" WHERE "+s.id+" = $1::text::"+strings.TrimSuffix(s.array, "[]")
		}
	}
	found, err := c.groups(ctx, name, of, 0, key)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42501" {
		return "a " + strings.ReplaceAll(kind, "_", " "), nil
	}
	names, _ := namesOf(found)
	return names, err
}

func applyReveal(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	id := p.Request.Targets[0]
	kind, key, err := parseid.Payload(id)
	if err != nil {
		return err
	}
	var a answer
	var payload *string
	most := queue.PayloadShown + 1 // one character more than is shown, to notice that the payload is longer
	if p.Request.Whole {
		most = 1 << 30
	}
	// A separate statement, so that the audit row is committed before any of the payload
	// is shown.
	if err := c.act.QueryRow(ctx, `SELECT s.r - 'payload'::text, left((s.r -> 'payload'::text)::text, $5::int)
		FROM (SELECT public.fn_payload_reveal($1::text, $2::text, $3::text, $4::text) AS r OFFSET 0) s`,
		kind, key, p.Request.Actor, p.Request.Reason, most).Scan(&a, &payload); err != nil {
		return err
	}
	recordOne(res, id, "revealed", a)
	if res.Refused == "" && payload != nil {
		res.Payload = queue.CleanLong(*payload) // the text as stored: decoding would change numbers
	}
	return nil
}

// revealCommand returns the show verb for the target, with --reveal.
func revealCommand(r queue.Request) string {
	show := queue.Action{Words: "dlq show", Targets: queue.Targets{Name: "ID"}, Danger: queue.DangerOne}
	if kind, _, _ := parseid.Payload(strings.Join(r.Targets, " ")); kind == "job" {
		show.Words = "job show"
	}
	if r.Reason == "" {
		return show.Command(r) + " --reveal"
	}
	return strings.Replace(show.Command(r), " --reason ", " --reveal --reason ", 1)
}
