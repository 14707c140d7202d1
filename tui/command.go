package tui

// This file is the command line: pane names and the verbs of the registry, as
// the headless form spells them.

import (
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

// paneNames are the words that open panes.
func paneNames() map[string]queue.PaneID {
	names := map[string]queue.PaneID{}
	for _, p := range Panes() {
		names[string(p.ID)] = p.ID
		if p.Also != "" {
			names[p.Also] = p.ID
		}
	}
	return names
}

func (m *root) openCommand() {
	m.line = prompt{kind: promptCommand, input: newInput(""), history: m.line.history, recall: len(m.line.history)}
}

func (m *root) typedCommand(msg tea.Msg, key string) tea.Cmd {
	p := &m.line
	switch key {
	case "esc":
		m.line = prompt{history: p.history}
		return nil
	case "enter":
		text := strings.TrimSpace(p.input.Value())
		history := p.history
		if text != "" {
			history = append(history, text)
		}
		m.line = prompt{history: history}
		return m.command(text)
	case "tab", "shift+tab":
		m.complete(key == "tab")
		return nil
	case "up", "down":
		m.recall(key == "up")
		return nil
	case "backspace":
		if p.input.Value() == "" {
			m.line = prompt{history: p.history}
			return nil
		}
	}
	p.input = edit(p.input, msg)
	p.offers, p.problem = nil, ""
	return nil
}

func (m *root) recall(up bool) {
	p := &m.line
	if up {
		p.recall--
	} else {
		p.recall++
	}
	p.recall = min(max(p.recall, 0), len(p.history))
	text := ""
	if p.recall < len(p.history) {
		text = p.history[p.recall]
	}
	p.input.SetValue(text)
	p.input.CursorEnd()
}

// complete puts the next completion in; what there is stands below the line.
func (m *root) complete(forward bool) {
	p := &m.line
	if p.offers == nil {
		p.offers, p.offer = m.offers(p.input.Value()), -1
	}
	if len(p.offers) == 0 {
		p.problem = "nothing begins like this"
	}
	m.offerNext(forward)
}

// offerNext puts the next of the offers into the line, in turn.
func (m *root) offerNext(forward bool) {
	p, n := &m.line, len(m.line.offers)
	switch {
	case n == 0:
		return
	case forward:
		p.offer = (p.offer + 1) % n
	default:
		p.offer = (max(p.offer, 0) - 1 + n) % n
	}
	p.input.SetValue(p.offers[p.offer])
	p.input.CursorEnd()
}

// offers are the lines that text can become: first the verbs and panes, then
// the ids that a verb takes.
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
	for _, a := range m.actions {
		words := a.Words
		take(words + " ")
		if strings.HasPrefix(text, words+" ") {
			for _, id := range m.ids(a) {
				take(words + " " + id)
			}
		}
	}
	take("why ")
	if m.feed.picture != nil {
		for _, x := range m.feed.picture.Waiting {
			take("why " + x.Name())
		}
	}
	take("at ")
	take("export ")
	take("help")
	take("quit")
	return out
}

// ids are what an action can be done to, as far as the picture shows it.
func (m *root) ids(a queue.Action) []string {
	var out []string
	pic := m.feed.picture
	switch of := a.Targets.Of; {
	case of == "loop":
		for _, l := range loops(m.local) {
			out = append(out, l.Name)
		}
	case pic == nil:
	case of == "alert":
		for _, x := range pic.Alerts {
			out = append(out, x.Subject.String())
		}
	case of == "flag":
		for _, x := range pic.Flags {
			out = append(out, x.Key.String())
		}
	case of == "executor":
		for _, x := range pic.Executors {
			if x.DeregisteredAt == nil {
				out = append(out, x.ID.String())
			}
		}
	case of == "lease":
		for _, x := range pic.JobLeases {
			out = append(out, x.Token)
		}
	case of == "tick worker":
		out = tickWorkers(m.feed.picture)
	}
	return out
}

// command does what a line says.
func (m *root) command(text string) tea.Cmd {
	switch text {
	case "":
		return nil
	case "q", "quit", "exit":
		return m.quit()
	case "help", "h":
		m.raise(m.help())
		return nil
	}
	if file, ok := cutWords(text, "export"); ok {
		return m.export(strings.TrimSpace(file))
	}
	if when, ok := cutWords(text, "at"); ok {
		return m.travelTo(strings.TrimSpace(when))
	}
	if name, ok := cutWords(text, "why"); ok {
		return m.why(strings.TrimSpace(name))
	}
	best, rest := queue.Action{}, ""
	for _, a := range m.actions {
		words := a.Words
		if after, ok := cutWords(text, words); ok && len(words) > len(best.Words) {
			best, rest = a, after
		}
	}
	if best.ID != "" {
		return m.commandAct(best, strings.Fields(rest))
	}
	if id, ok := paneNames()[text]; ok {
		return m.open(id)
	}
	for _, p := range Panes() {
		if strings.EqualFold(p.Title, text) || p.Keys == text {
			return m.open(p.ID)
		}
	}
	m.warn(":" + text + " is no command; tab completes, ? lists")
	return nil
}

func cutWords(text, words string) (rest string, ok bool) {
	if words == "" {
		return "", false
	}
	if text == words {
		return "", true
	}
	return strings.CutPrefix(text, words+" ")
}

// commandAct starts an action with the targets that the line names; without any
// it works on what is under the cursor, like the key.
func (m *root) commandAct(a queue.Action, words []string) tea.Cmd {
	if off := m.off(a); off != "" {
		m.warn(a.Verb + " is off: " + off)
		return nil
	}
	req := queue.Request{Args: map[string]string{}}
	if len(words) == 0 {
		if works(a, m.at) && a.Key != "" {
			return m.act(a, nil)
		}
		if a.Targets.Name != "" && a.Danger != queue.DangerDatabase {
			m.warn(":" + a.Words + " needs to know on what; tab completes")
			return nil
		}
	}
	switch free := a.Free().Name; {
	case a.Targets.Name == "" && free != "":
		req.Args[free] = strings.Join(words, " ")
	case free != "":
		req.Targets, req.Args[free] = words[:1], strings.Join(words[1:], " ")
	default:
		req.Targets = words
	}
	if p := m.feed.picture; a.Danger == queue.DangerDatabase && (p == nil || p.Server.CloneOf.Empty()) {
		m.warn("this database is no clone: there is nothing to " + a.Words)
		return nil
	}
	if line := m.form(a.ID).line; line != nil {
		if problem := line(m.feed.picture, words, &req); problem != "" {
			m.warn(problem)
			return nil
		}
	}
	return m.ask(a, req)
}
