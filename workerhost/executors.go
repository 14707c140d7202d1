package workerhost

import (
	"context"
	"fmt"
	"sync"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/loop"
)

// claimants has, per client and executor, the host that started the loop job_executor last. After
// a claim without an answer a host releases every lease of its executor that the client's sessions
// claimed and that it does not know: it would release those of another host on the same client.
var claimants = struct {
	sync.Mutex
	hosts map[claimant]*Host
}{hosts: map[claimant]*Host{}}

type claimant struct {
	client   *pgclient.Client
	executor string
}

func (h *Host) claimant() claimant { return claimant{h.client, h.opts.Executor} }

// mayClaim returns an error if another host on the same client claims jobs for the executor. The
// caller holds claimants.
func (h *Host) mayClaim() error {
	other := claimants.hosts[h.claimant()]
	if other == nil || other == h || other.loops.get(loopJobs).Status().State == loop.Stopped {
		return nil
	}
	return queue.NewError(queue.KindConfig, fmt.Sprintf("host %s on the same pgclient.Client claims jobs for executor %s", other.opts.ID, h.opts.Executor),
		"host "+h.opts.ID, "open a Client for each host that shares an executor")
}

// checkExecutor returns the error of mayClaim. Of two hosts with one id the host id decides which
// runs: see announce.
func (h *Host) checkExecutor() error {
	claimants.Lock()
	defer claimants.Unlock()
	if other := claimants.hosts[h.claimant()]; other != nil && other.opts.ID == h.opts.ID {
		return nil
	}
	return h.mayClaim()
}

// startJobs starts the loop job_executor.
func (h *Host) startJobs(base context.Context, l *loop.Loop) error {
	claimants.Lock()
	defer claimants.Unlock()
	if err := h.mayClaim(); err != nil {
		return err
	}
	if err := l.Start(base, h.jobs.Run); err != nil {
		return err
	}
	claimants.hosts[h.claimant()] = h
	return nil
}

// forgetExecutor is called when no loop of the host can start any more.
func (h *Host) forgetExecutor() {
	claimants.Lock()
	defer claimants.Unlock()
	if claimants.hosts[h.claimant()] == h {
		delete(claimants.hosts, h.claimant())
	}
}
