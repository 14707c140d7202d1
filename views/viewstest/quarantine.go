package viewstest

import (
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// Quarantine returns two rows in quarantine: a delivery job that cannot be
// settled, and a counter that is being retried.
func Quarantine() []queue.Quarantined {
	return []queue.Quarantined{
		{ID: 4, Step: t("webhook_settle"), Target: t("88001"), Attempts: 3, Code: t("22012"), Error: t("division by zero"), FirstFailed: ptr(ago(2 * time.Hour)),
			LastFailed: ptr(ago(110 * time.Minute)), NextTry: ptr(ago(108 * time.Minute)), SetAside: ptr(ago(110 * time.Minute))},
		{ID: 7, Step: t("counter_fold"), Target: t(`["job", "kg.reindex", "kg", "queued"]`), Attempts: 2, Code: t("40001"), Error: t("could not serialize access"),
			FirstFailed: ptr(ago(time.Minute)), LastFailed: ptr(ago(30 * time.Second)), NextTry: ptr(ago(-4 * time.Second))},
	}
}
