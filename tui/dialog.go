package tui

// This file is the dialog of an action as a state machine: form, planning,
// preview, applying, answer. It answers with effects and calls nothing.

import (
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

type stage int

const (
	stageForm     stage = iota // what the action needs to know
	stagePlanning              // the database reads
	stagePreview               // what would happen, and whether
	stageApplying
	stageDone // what happened, or why not
)

type dialog struct {
	serial int
	action queue.Action
	req    queue.Request
	stage  stage
	form   []*field
	typed  []*field // what must be typed in the preview
	focus  int
	gate   gate
	plan   queue.Plan
	result queue.Result
	err    error
	offset int

	production string           // this is production, and this is its name
	undo       string           // how it is taken back; "" = not at all
	about      []queue.PlanLine // what the form tells of the target
}

func newDialog(serial int, a queue.Action, req queue.Request, now time.Time, args []queue.Arg) *dialog {
	d := &dialog{serial: serial, action: a, req: req, gate: newGate(now), stage: stagePlanning}
	for _, arg := range args {
		d.form = append(d.form, newField(arg))
	}
	if a.Reason {
		d.form = append(d.form, newField(queue.Arg{
			Name: reasonField, Label: "Reason", Default: req.Reason, Required: true, Help: "stands in the audit: why",
		}))
	}
	if len(d.form) > 0 {
		d.stage = stageForm
		d.focus = d.firstEmpty()
	}
	return d
}

// reasonField is the field that becomes Request.Reason.
const reasonField = "\x00reason"

func (d *dialog) firstEmpty() int {
	for i, f := range d.form {
		if f.value() == "" && f.arg.Required {
			return i
		}
	}
	return 0
}

// fields are the inputs that show.
func (d *dialog) fields() []*field {
	switch d.stage {
	case stageForm:
		return d.form
	case stagePreview:
		return d.typed
	default:
		return nil
	}
}

// buttons name what they do; the safe one is first.
func (d *dialog) buttons() []string {
	switch d.stage {
	case stageForm:
		return []string{"Preview", d.action.Left()}
	case stagePreview:
		if d.plan.Refused != "" || d.plan.Count == 0 {
			return []string{"Close"}
		}
		return []string{d.action.Kept(), d.action.Pressed(d.req, d.plan.Count, views.Count(d.plan.Count))}
	case stageDone:
		if d.failed() {
			return []string{"Close", "Preview again"}
		}
		return []string{"Close"}
	default: // reading or doing: nothing to press
		return nil
	}
}

func (d *dialog) failed() bool { return d.err != nil || d.result.Refused != "" }

func (d *dialog) update(msg tea.Msg, at place) (overlay, effect) {
	fields := d.fields()
	if p, ok := msg.(tea.PasteMsg); ok {
		d.paste(p, fields)
		return d, nil
	}
	k, ok := msg.(tea.KeyPressMsg)
	if !ok {
		return d, nil
	}
	s := k.String()
	if s == "esc" {
		if d.stage == stageApplying {
			return d, nil // it is on its way; its answer must be seen
		}
		return nil, nil
	}
	// A form does nothing and leads to a preview, which has a gate of its own. A
	// closed gate lets nothing in, not even a tab: one that was typed ahead would
	// leave the focus on the button that acts, for the next enter to press.
	if d.stage != stageForm && !d.gate.passes(at.now) {
		return d, nil
	}
	switch s {
	case "pgdown":
		d.offset += 5
	case "pgup":
		d.offset = max(d.offset-5, 0)
	case "tab", "down":
		d.turn(1)
	case "shift+tab", "up":
		d.turn(-1)
	case "enter":
		return d.answer()
	case "left", "right":
		if d.focus < len(fields) {
			fields[d.focus].edit(k)
		} else if s == "left" {
			d.turn(-1)
		} else {
			d.turn(1)
		}
	default:
		if d.focus < len(fields) {
			fields[d.focus].edit(k)
		}
	}
	return d, nil
}

// paste fills a form. It never confirms: what must be typed must be typed.
func (d *dialog) paste(p tea.PasteMsg, fields []*field) {
	switch {
	case d.focus >= len(fields):
	case d.stage == stageForm:
		fields[d.focus].edit(p)
	default:
		fields[d.focus].problem = "type it; pasted text does not confirm"
	}
}

// turn goes from field to button to field.
func (d *dialog) turn(by int) {
	if n := len(d.fields()) + len(d.buttons()); n > 0 {
		d.focus = (d.focus + by + n) % n
	}
}

// answer is enter on what has the focus.
func (d *dialog) answer() (overlay, effect) {
	n := len(d.fields())
	switch d.stage {
	case stageForm:
		if d.focus == n+1 {
			return nil, nil
		}
		if d.focus < n-1 {
			d.focus++
			return d, nil
		}
		return d, d.submit()
	case stagePreview:
		if d.focus < n {
			d.focus++
			return d, nil
		}
		if d.focus == n {
			return nil, nil
		}
		if !d.complete() {
			return d, nil
		}
		d.stage = stageApplying
		return d, effApply{d}
	case stageDone:
		if d.focus == n+1 {
			return d, effPlan{d}
		}
		return nil, nil
	default:
		return d, nil
	}
}

// submit checks the form and asks for the plan.
func (d *dialog) submit() effect {
	for i, f := range d.form {
		if !f.check() {
			d.focus = i
			return nil
		}
	}
	args := map[string]string{}
	for k, v := range d.req.Args {
		args[k] = v
	}
	for _, f := range d.form {
		if f.arg.Name == reasonField {
			d.req.Reason = f.value()
			continue
		}
		args[f.arg.Name] = f.value()
	}
	d.req.Args = args
	if free := d.action.Free(); d.action.Targets.Name == "" && free.Kind == queue.ArgWord { // a name that the form asks for is the target
		d.req.Targets = []string{args[free.Name]}
	}
	return effPlan{d}
}

// preview takes the plan in and sets up what has to be typed.
func (d *dialog) preview(p queue.Plan, locked bool, now time.Time) {
	d.stage, d.plan, d.err = stagePreview, p, nil
	d.req = p.Request
	d.gate, d.offset, d.typed = newGate(now), 0, nil
	if p.Refused == "" && p.Count > 0 {
		if locked {
			d.typed = append(d.typed, newField(queue.Arg{Name: d.production, Label: "Production", Help: "type " + d.production + " to unlock"}))
		}
		if d.action.Danger == queue.DangerMany && p.Count > 1 {
			n := strconv.FormatInt(p.Count, 10)
			d.typed = append(d.typed, newField(queue.Arg{Name: n, Label: "How many", Help: "type " + n + ", the number of rows"}))
		}
		if p.Confirm != "" {
			d.typed = append(d.typed, newField(queue.Arg{Name: p.Confirm, Label: "Database", Help: "type " + p.Confirm + ", the name of this database"}))
		}
	}
	d.focus = 0
}

// complete tells whether all that must be typed is; what is not gets the focus.
func (d *dialog) complete() bool {
	for i, f := range d.typed {
		if got := f.value(); got != f.arg.Name && strings.ReplaceAll(got, ",", "") != f.arg.Name {
			f.problem = "type " + f.arg.Name
			d.focus = i
			return false
		}
	}
	return true
}

// finish takes the answer in.
func (d *dialog) finish(r queue.Result, err error, now time.Time) {
	d.stage, d.result, d.err = stageDone, r, err
	d.gate, d.offset, d.focus = newGate(now), 0, 0
}
