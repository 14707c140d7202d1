package tui

// The command line (key :) accepts pane names and the actions, spelt as the
// command line verbs of qtop.

import (
	"slices"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

func (m *root) openCommand() {
	m.line = prompt{kind: promptCommand, input: newInput(""), history: m.line.history, recall: len(m.line.history)}
}

// typedCommand handles a key or a paste while the command line is open.
func (m *root) typedCommand(msg tea.Msg, key string) tea.Cmd {
	p := &m.line
	switch key {
	case "esc":
		m.line.close()
		return nil
	case "enter":
		text := strings.TrimSpace(p.input.Value())
		if text != "" {
			p.history = append(p.history, text)
		}
		m.line.close()
		return m.command(text)
	case "tab", "shift+tab":
		m.complete(key == "tab")
		return nil
	case "up", "down":
		m.recall(key == "up")
		return nil
	case "backspace":
		if p.input.Value() == "" {
			m.line.close()
			return nil
		}
	}
	p.input = edit(p.input, msg, oneLine)
	p.offers, p.problem = nil, ""
	return nil
}

// recall puts the previous or next line of the history into the command line.
func (m *root) recall(up bool) {
	p := &m.line
	p.recall = min(max(p.recall+queue.Choose(up, -1, 1), 0), len(p.history))
	text := ""
	if p.recall < len(p.history) {
		text = p.history[p.recall]
	}
	p.set(text)
}

// complete puts the next completion into the line; forward is false for the
// previous one. The footer lists all completions.
func (m *root) complete(forward bool) {
	p := &m.line
	if p.offers == nil {
		p.offers, p.offer = m.offers(p.input.Value()), -1
	}
	if len(p.offers) == 0 {
		p.problem = "no command begins with this text"
	}
	m.offerNext(forward)
}

// offerNext puts the next or previous completion into the line; after the last
// it begins again with the first.
func (m *root) offerNext(forward bool) {
	p, n := &m.line, len(m.line.offers)
	if n == 0 {
		return
	}
	p.offer = queue.Choose(forward, p.offer+1, max(p.offer, 0)-1+n) % n
	p.set(p.offers[p.offer])
}

// offers returns the completions of text: names of panes, actions, and the ids
// of rows that the action could work on.
func (m *root) offers(text string) []string {
	var out []string
	take := func(s string) {
		if strings.HasPrefix(s, text) && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	for _, p := range Panes() {
		take(string(p.ID))
	}
	name := func(before, plain, quoted string) { // found however it is typed, and offered as the line reads it
		if strings.HasPrefix(before+plain, text) || strings.HasPrefix(before+quoted, text) {
			out = append(out, before+quoted)
		}
	}
	for _, a := range m.actions {
		words := a.Words
		take(words + " ")
		if strings.HasPrefix(text, words+" ") {
			for _, id := range m.ids(a) {
				name(words+" ", id, queue.ShellQuote(id))
			}
		}
	}
	take("why ")
	for _, x := range m.feed.snapshot.OrEmpty().Waiting {
		if plain := x.Name(); strings.Join(lineWords(plain), " ") == plain {
			take("why " + plain)
		} else {
			name("why ", plain, queue.ShellQuote(plain))
		}
	}
	for _, word := range []string{"at ", "export ", "help", "quit"} {
		take(word)
	}
	return out
}

// ids returns the possible targets of an action that the snapshot contains.
func (m *root) ids(a queue.Action) []string {
	var out []string
	if a.Targets.Of == "loop" {
		for _, l := range loops(m.local) {
			out = append(out, l.Name)
		}
		return out
	}
	for _, x := range m.feed.snapshot.OrEmpty().IDs(a.Targets.Of) {
		out = append(out, x.ID)
	}
	return out
}

// command carries out one line of the command line.
func (m *root) command(text string) tea.Cmd {
	// A command that a dialog prints begins with "qtop"; an operator can paste
	// it here unchanged.
	text = strings.TrimPrefix(strings.TrimPrefix(text, ":"), "qtop ")
	switch text {
	case "":
		return nil
	case "q", "quit", "exit":
		return m.quit()
	case "help", "h":
		m.raise(m.help())
		return nil
	}
	line := lineWords(text)
	if len(line) == 0 {
		return nil
	}
	switch rest := strings.Join(line[1:], " "); line[0] {
	case "export":
		return m.export(rest)
	case "at":
		return m.travelTo(rest)
	case "why":
		return m.why(rest)
	}
	best, rest, most := queue.Action{}, []string(nil), 0
	for _, a := range m.actions {
		if after, n, ok := a.Spelled(line); ok && n > most {
			best, rest, most = a, after, n
		}
	}
	if most > 0 {
		return m.commandAct(best, rest)
	}
	if p, ok := queue.Find(Panes(), func(p queue.Pane) bool {
		return string(p.ID) == text || p.Also == text || strings.EqualFold(p.Title, text) || p.Keys == text
	}); ok {
		return m.open(p.ID)
	}
	meant := m.lastWord(line[0])
	if len(meant) == 1 {
		return m.commandAct(meant[0], line[1:])
	}
	names := make([]string, len(meant))
	for i, a := range meant {
		names[i] = ":" + a.Words
	}
	m.warn("unknown command :" + text + "; " + queue.Choose(len(names) > 0, strings.Join(names, " or ")+"?", "tab completes, ? lists keys"))
	return nil
}

// lastWord returns the actions whose command has several words and ends with
// word, so that "ack" finds "alert ack". If there are several, it returns
// those of the open pane, or all if none belongs to it.
func (m *root) lastWord(word string) (found []queue.Action) {
	for _, a := range m.actions {
		if words := strings.Fields(a.Words); len(words) > 1 && words[len(words)-1] == word {
			found = append(found, a)
		}
	}
	here := slices.DeleteFunc(slices.Clone(found), func(a queue.Action) bool { return !worksIn(a, m.at) })
	return queue.Choose(len(found) > 1 && len(here) > 0, here, found)
}

// lineWords splits a typed line into words as a shell does; a line with a quotation that is not
// closed, such as a name with an apostrophe, at its blanks.
func lineWords(text string) []string {
	words, closed := queue.SplitWords(text)
	return queue.Choose(closed, words, strings.Fields(text))
}

// commandAct starts an action on the targets that the line names. If the line
// names none, the targets are those of the action's key: the selected rows,
// else the row under the cursor or of the open page. The form then has what
// the flags of the line say.
func (m *root) commandAct(a queue.Action, words []string) tea.Cmd {
	if off := m.off(a); off != "" {
		m.warnWhile(a.Verb+" is off: "+off, func() bool { return m.off(a) == off })
		return nil
	}
	typed, problem := a.Read(words)
	if problem != "" {
		m.warn(":" + a.Words + ": " + problem)
		return nil
	}
	words = typed.Words
	req := queue.Request{Args: map[string]string{}, Reason: typed.Reason}
	req.Select(typed.Filters)
	unnamed := len(words) == 0 && len(typed.Filters) == 0 && !typed.All
	if unnamed && (!typed.Flags || a.Targets != (queue.Targets{})) { // an action without targets, such as an addition, has all it needs in its flags
		if at := m.scene().acting(); worksIn(a, m.at) && a.Key != "" || at.target(a.ID) != nil || at.elsewhere(a.ID) != "" {
			return m.act(a, typed.Args, typed.Reason)
		}
		if a.Targets.Name != "" && a.Danger != queue.DangerDatabase {
			m.warn(":" + a.Words + " needs a target; tab completes targets")
			return nil
		}
	}
	switch free := a.Free().Name; {
	case a.Targets.Name == "" && free != "":
		req.Args[free] = strings.Join(words, " ")
	case free != "" && len(words) > 0:
		req.Targets, req.Args[free] = words[:1], strings.Join(words[1:], " ")
	default:
		req.Targets = words
	}
	if a.Danger == queue.DangerDatabase && m.feed.snapshot.OrEmpty().Server.CloneOf.Empty() {
		m.warn("this database is not a clone: there is nothing to " + a.Words)
		return nil
	}
	if a.Targets.Name != "" && a.Danger != queue.DangerDatabase && len(words) == 0 && req.Filter == "" && !typed.All {
		m.warn(":" + a.Words + " needs a target; tab completes targets")
		return nil
	}
	if len(words) > 0 && req.Filter != "" {
		m.warn(":" + a.Words + ": give ids or --filter, not both")
		return nil
	}
	if line := m.form(a.ID).parseWords; line != nil && !typed.Flags {
		if problem := line(m.feed.snapshot, words, &req); problem != "" {
			m.warn(problem)
			return nil
		}
	}
	for name, v := range typed.Args {
		req.Args[name] = v
	}
	ask := asked{action: a, req: req, ready: typed.Flags && a.Ready(req), taken: takenLines(m.scene().acting().named(a, req.Targets), req)}
	if a.ID == queue.ActReveal && (m.pane().top().page == nil || m.pane().top().id != req.Targets[0]) {
		// A payload is shown only on the page of its dead letter or job, so
		// that page is opened first.
		return tea.Batch(m.openPayload(req.Targets[0]), m.ask(ask))
	}
	return m.ask(ask)
}

// openPayload opens the page of a dead letter or of a job.
func (m *root) openPayload(id string) tea.Cmd {
	if _, err := strconv.ParseInt(id, 10, 64); err != nil && !strings.Contains(id, ":") {
		return tea.Batch(m.open(queue.PaneQueues), m.push(jobLevel(queue.Job{ID: id})))
	}
	return tea.Batch(m.open(queue.PaneDead), m.push(deadLetterLevel(queue.DeadLetter{ID: id})))
}
