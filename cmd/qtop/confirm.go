package main

// How an action is confirmed: on the terminal, or by --yes and --confirm.

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// confirm asks the operator to confirm a plan, unless --yes is given. If
// nobody can answer (headless), it refuses. An action on the whole database,
// and a guarded action in a guarded database, must be confirmed with a name,
// which is typed or given as --confirm.
func (a *app) confirm(ctx context.Context, c *pgclient.Client, p queue.Plan, o actOptions) error {
	entry := actions.Registry().ByID(p.Request.Action)
	name, whose := p.Confirm, queue.Choose(entry.ID == queue.ActEnvironment, "guarded environment", "database")
	if name == "" && entry.Guards() {
		e, err := c.Environment(ctx)
		if err != nil {
			return err
		}
		name, whose = e.Guard(a.settings.Production), queue.Choose(e.Name.Empty(), "guarded database", "guarded environment")
	}
	headless := a.headless()
	switch {
	case name != "" && o.confirm == name, name == "" && o.yes:
		return nil
	case name != "" && o.confirm != "":
		return usage(fmt.Sprintf("the name of the %s is %s, not %s", whose, name, o.confirm), "--confirm", "nothing was changed")
	case name != "" && (o.yes || headless):
		return usage(fmt.Sprintf("the name of the %s (%s) is needed: --yes is not enough", whose, name), "command line", "give --confirm NAME, or --dry-run to see the plan")
	case headless:
		return usage("cannot ask for confirmation without a terminal, or with --output json", "command line", "give --yes, or --dry-run to see the plan")
	}
	a.planLines(p)
	ask, want := entry.Verb, "yes"
	// The question names the number of rows. For other actions, a number after
	// the verb could be mistaken for an id.
	if entry.Danger == queue.DangerMany {
		ask = fmt.Sprintf("%s %d", ask, p.Count)
	}
	if p.Count > 1 {
		want = fmt.Sprint(p.Count)
	}
	return a.typed(ctx, ask, cmp.Or(name, want))
}

// headless reports whether nobody can answer a question.
func (a *app) headless() bool { return !terminal(a.in) || a.output == "json" }

// typed asks the operator to type the text want. It returns an error if the
// input differs; if want is "yes", y is enough.
func (a *app) typed(ctx context.Context, ask, want string) error {
	fmt.Fprintf(a.errs, "%s? Type %s to do it: ", ask, queue.Clean(want))
	text, err := awaitInput(ctx, func() (string, error) { return bufio.NewReader(a.in).ReadString('\n') })
	if errors.Is(err, errInterrupted) {
		return a.interrupted()
	}
	said := strings.TrimSpace(text)
	if a.ascii.Load() && said == theme.ASCIIText(want) { // with --ascii the question showed want in ASCII
		said = want
	}
	if err != nil || said != want && !(want == "yes" && slices.Contains([]string{"y", "yes"}, strings.ToLower(said))) {
		return &queue.Error{Kind: queue.KindFailed, What: queue.Clean("not confirmed: nothing was changed")}
	}
	return nil
}
