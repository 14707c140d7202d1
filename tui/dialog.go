package tui

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

type stage int

const (
	stageForm     stage = iota // the operator fills in the inputs
	stagePlanning              // the database reads what would change
	stagePreview               // the operator confirms or cancels
	stageApplying              // the action runs
	stageDone                  // the result, or the reason why nothing was done
)

// dialog is the dialog of one action, a state machine over the stages above.
// It never calls the store: its answer to a key is an effect, a request that
// root.perform carries out.
type dialog struct {
	serial int
	action queue.Action
	req    queue.Request
	given  map[string]string // the arguments that the request had before the form was filled in
	asked  *queue.Request    // what was planned last, and is planned again after a refusal; nil = req is planned next
	stage  stage
	form   []*field
	typed  []*field // what the operator must type in the preview to confirm: the count, the name of the production database
	focus  int
	gate   keyGate
	plan   queue.Plan
	result queue.Result
	err    error
	stop   context.CancelFunc // ends the call that reads the plan; nil: there is none
	mark   string             // whether the mark of an action on loops of this process was set
	before []string           // what earlier attempts of this dialog changed, if that is unknown
	offset int

	keys     []string         // the inputs that name the row (form.keys)
	place    place            // where the plan was made; without a name: not production
	actions  queue.Registry   // names how the action is undone
	facts    []queue.PlanLine // facts about the target, shown above the inputs
	taken    []queue.PlanLine // lines that name the targets (scene.taken)
	selected bool             // the targets are the selected rows of the open table
}

func newDialog(serial int, a queue.Action, req queue.Request, now time.Time, args []queue.Arg) *dialog {
	d := &dialog{serial: serial, action: a, req: req, given: req.Args, gate: newKeyGate(now), stage: stagePlanning}
	for _, arg := range args {
		d.form = append(d.form, newField(arg))
	}
	if a.Reason {
		d.form = append(d.form, newField(queue.Arg{
			Name: reasonField, Label: "Reason", Default: req.Reason, Required: true, Max: queue.MostReason, Help: "recorded in the audit",
		}))
	}
	if len(d.form) > 0 {
		d.stage = stageForm
		d.focus = d.firstEmpty()
	}
	return d
}

// reasonField is the name of the input that becomes Request.Reason. No action has an argument of this
// name, because it would have the flag --reason.
const reasonField = "reason"

func (d *dialog) firstEmpty() int {
	for i, f := range d.form {
		if f.value() == "" && f.arg.Required {
			return i
		}
	}
	return 0
}

// fields returns the inputs of the current stage.
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

// writing reports whether an input for text has the focus.
func (d *dialog) writing() bool {
	fields := d.fields()
	return d.focus < len(fields) && len(fields[d.focus].arg.Options()) == 0
}

// buttons returns the labels of the buttons, the safe one first.
func (d *dialog) buttons() []string {
	switch d.stage {
	case stageForm:
		return []string{"Preview", d.action.Left()}
	case stagePreview:
		b := []string{"Close"}
		if d.acts() {
			b = []string{d.action.Kept(), d.action.Pressed(d.req, d.plan.Count, views.Count(d.plan.Count))}
		}
		if m := d.plan.Match; m != nil {
			b = append(b, "All "+matchCount(m)+" that match")
		}
		if !d.acts() && len(d.form) > 0 {
			b = append(b, editForm)
		}
		return b
	case stageDone:
		b := []string{"Close"}
		if d.failed() {
			b = append(b, "Preview again")
		}
		if d.failed() && !d.unsure() && len(d.form) > 0 {
			b = append(b, editForm)
		}
		return b
	default: // planning and applying have no buttons
		return nil
	}
}

// editForm is the button that goes back to the form, with what was typed in it: a plan may refuse one of
// several values.
const editForm = "Edit the form"

// edit goes back to the form, and to the request as it was planned: a plan changes it to what it confirms.
func (d *dialog) edit() {
	if d.asked != nil {
		d.req = *d.asked
	}
	d.req.Args, d.stage, d.focus, d.offset = d.given, stageForm, 0, 0
}

// acts reports whether the preview has something to confirm.
func (d *dialog) acts() bool { return d.plan.Refused == "" && d.plan.Count > 0 }

func (d *dialog) failed() bool { return d.err != nil || d.result.Refused != "" }

func (d *dialog) update(msg tea.Msg, at overlayContext) (overlay, effect) {
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
			return d, nil // a running action cannot be cancelled: the operator must see its result
		}
		d.leave()
		return nil, nil
	}
	// A form changes nothing: the preview follows, which has its own gate
	// (keyGate). While the gate is closed, the dialog drops every key, even
	// tab: a tab typed too early would move the focus to the button that acts,
	// and the next enter would press it.
	if d.stage != stageForm && !d.gate.allows(at.now) {
		return d, nil
	}
	switch s {
	case "pgdown", "pgup":
		v := d.view(at)
		last, step := v.Last(at.env, at.size), v.Shown(at.env, at.size)
		d.offset = min(max(min(d.offset, last)+queue.Choose(s == "pgup", -step, step), 0), last)
	case "tab", "down":
		d.moveFocus(1)
	case "shift+tab", "up":
		d.moveFocus(-1)
	case "enter":
		return d.press()
	case "left", "right":
		if d.focus < len(fields) {
			fields[d.focus].edit(k)
		} else if s == "left" {
			d.moveFocus(-1)
		} else {
			d.moveFocus(1)
		}
	default:
		if d.focus < len(fields) {
			fields[d.focus].edit(k)
		}
	}
	return d, nil
}

// leave ends the call that reads the plan: the operator has the plan or no longer waits for it, and the
// connections for actions are few.
func (d *dialog) leave() {
	if d.stop != nil {
		d.stop()
		d.stop = nil
	}
}

// paste fills a form. Pasted text never confirms: a confirmation must be typed.
func (d *dialog) paste(p tea.PasteMsg, fields []*field) {
	switch {
	case d.focus >= len(fields):
	case d.stage == stageForm:
		fields[d.focus].edit(p)
	default:
		fields[d.focus].problem = "type the text; pasted text does not confirm"
	}
}

// moveFocus moves the focus through the inputs and buttons, cyclically.
func (d *dialog) moveFocus(by int) {
	if n := len(d.fields()) + len(d.buttons()); n > 0 {
		d.focus = (d.focus + by + n) % n
	}
}

// press handles enter on the focused input or button.
func (d *dialog) press() (overlay, effect) {
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
		if d.buttons()[d.focus-n] == editForm {
			d.edit()
			return d, nil
		}
		if !d.acts() || d.focus == n+2 {
			d.widen()
			return d, effPlan{d}
		}
		if !d.confirmed() {
			return d, nil
		}
		d.stage = stageApplying
		return d, effApply{d}
	case stageDone:
		if d.focus == n+2 {
			d.edit()
			return d, nil
		}
		if d.focus == n+1 {
			if d.unsure() {
				d.before = append(d.before, d.outcome()...)
			}
			return d, effPlan{d}
		}
		return nil, nil
	default:
		return d, nil
	}
}

// widen changes the request from some rows to all rows that match the filter
// of their list. The caller then plans the request again, so that the operator
// confirms a preview of all these rows.
func (d *dialog) widen() {
	d.req.Targets = nil
	d.req.Select([]string{d.req.Within})
	d.req.Within, d.asked = "", nil
	d.taken = takenLines(nil, d.req)
	d.typed = nil
}

// submit checks the form and asks for the plan.
func (d *dialog) submit() effect {
	args := map[string]string{}
	for k, v := range d.req.Args {
		args[k] = v
	}
	same := !slices.ContainsFunc(d.form, func(f *field) bool { return slices.Contains(d.keys, f.arg.Name) && f.edited() })
	for _, f := range d.form {
		if _, given := d.req.Args[f.arg.Name]; given || !f.arg.Clears || f.edited() || !same {
			args[f.arg.Name] = f.value()
		} // else left out, so that the row keeps its value, of which the input may show only a part
	}
	for i, f := range d.form {
		if !f.check(args) {
			d.focus = i
			return nil
		}
	}
	delete(args, reasonField)
	for _, f := range d.form {
		if f.arg.Name == reasonField {
			d.req.Reason = f.value()
		}
	}
	d.req.Args, d.asked = args, nil
	if free := d.action.Free(); d.action.Targets.Name == "" && free.Kind == queue.ArgWord { // the input is the name of the target
		d.req.Targets = []string{args[free.Name]}
	}
	return effPlan{d}
}

// preview shows the plan. locked means that the operator must type the name of
// the production database; a plan can also require its count to be typed.
func (d *dialog) preview(p queue.Plan, locked bool, now time.Time) {
	d.stage, d.plan, d.err = stagePreview, p, nil
	d.req = p.Request
	d.gate, d.offset, d.typed = newKeyGate(now), 0, nil
	if d.acts() {
		if locked {
			d.typed = append(d.typed, newField(queue.Arg{Name: d.place.name, Label: "Production", Help: "type " + d.place.name + " to unlock"}))
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

// confirmed reports whether every confirmation is typed. The first missing one gets the focus.
func (d *dialog) confirmed() bool {
	for i, f := range d.typed {
		if got := f.value(); got != f.arg.Name && strings.ReplaceAll(got, ",", "") != f.arg.Name {
			f.problem = "type " + f.arg.Name
			d.focus = i
			return false
		}
	}
	return true
}

// finish shows the result or the error.
func (d *dialog) finish(r queue.Result, err error, now time.Time) {
	d.stage, d.result, d.err = stageDone, r, err
	d.gate, d.offset, d.focus = newKeyGate(now), 0, 0
}
