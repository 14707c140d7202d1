// The guards that read the call stack, where the server's language is not English.

package schema_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestCalledFrom(t *testing.T) {
	c := newCore(t)
	const first = "x fn_job_queue_counted() x\n"
	from := func(line string) bool {
		return get[bool](c, `SELECT fn_called_from($1, 'fn_job_ack\(uuid\[],uuid\[]\)')`, first+line)
	}
	for _, words := range []string{ // of the message catalogs of PL/pgSQL 15
		"PL/pgSQL function %s line %d at %s", "PL/pgSQL funkce %s řádek %d na %s", "PL/pgSQL-Funktion %s Zeile %d bei %s",
		"συνάρτηση PL/pgSQL %s γραμμή %d στο %s", "función PL/pgSQL %s en la línea %d en %s", "fonction PL/pgSQL %s, ligne %d à %s",
		"funzione PL/pgSQL %s riga %d a %s", "PL/pgSQL関数%sの%d行目 - %s", "PL/pgSQL ფუნქცია %s ხაზზე %d %s-სთან",
		"PL/pgSQL 함수 \"%s\" 의 %d번째 %s", "funkcja PL/pgSQL %s, wiersz %d w %s", "função PL/pgSQL %s linha %d em %s",
		"функция PL/pgSQL %s, строка %d, оператор %s", "PL/pgSQL-funktion %s rad %d vid %s", "%s PL/pgSQL fonksiyonu, %d. satır, %s içinde",
		"Функція PL/pgSQL %s рядок %d в %s", "Hàm PL/pgSQL %s dòng %d tại %s", "在%[3]s的第%[2]d行的PL/pgSQL函数%[1]s",
	} {
		require.True(t, from("SQL »DELETE FROM x«\n"+fmt.Sprintf(words, "fn_job_ack(uuid[],uuid[])", 5, "SQL")), words)
		for _, other := range []string{"fn_job_ack(uuid[])", "fn_job_mine()", "my_fn_job_ack(uuid[],uuid[])", "pg_temp.fn_job_ack(uuid[],uuid[])"} {
			require.False(t, from(fmt.Sprintf(words, other, 5, "SQL")), words, other)
		}
	}
	require.False(t, from(`SQL statement "DELETE FROM job_queue /* fn_job_ack(uuid[],uuid[]) */"`), "a remark")
	require.False(t, from(`SQL statement "DELETE FROM job_queue WHERE 'fn_job_ack(uuid[],uuid[])' <> ''"`), "a text")
}

func TestJobsEndInAnotherLanguage(t *testing.T) {
	j := newJobs(t)
	var database string
	require.NoError(t, j.root.QueryRow(context.Background(), "SELECT current_database()").Scan(&database))
	tx := j.begin(j.root)
	_, err := tx.Exec(context.Background(), "SET LOCAL lc_messages = 'C.UTF-8'")
	if err == nil {
		_, err = tx.Exec(context.Background(), "DO $$ BEGIN PERFORM 1 / 0; END $$")
	}
	require.NoError(t, tx.Rollback(context.Background()))
	if err == nil || !strings.Contains(err.Error(), "Division durch Null") {
		t.Skipf("this server has no German messages under C.UTF-8 (%v): its catalogs or that locale are missing, or it does not run with LANGUAGE=de", err)
	}
	j.exec("ALTER DATABASE " + pgx.Identifier{database}.Sanitize() + " SET lc_messages = 'C.UTF-8'")
	j.root.Reset()
	j.work.Reset()
	require.Equal(t, "C.UTF-8", get[string](j.core, "SHOW lc_messages"))

	for _, status := range []string{"succeeded", "failed", "cancelled", "dead_letter"} {
		h := j.standing(status)
		require.Equal(t, status, get[string](j.core, "SELECT status FROM job_history WHERE job_id = $1", h.Job))
	}
	letter := get[string](j.core, "SELECT dead_letter_id::text FROM job_dead_letter")
	call(t, j.work, "fn_job_dead_letter_replay(ARRAY[$1]::uuid[], 'ann', 'test')", letter)
	call(t, j.work, "fn_job_dead_letter_replay_undo(ARRAY[$1]::uuid[], 'ann', 'test')", letter)
	require.Equal(t, "open", get[string](j.core, "SELECT triage_status FROM job_dead_letter"))
	h := j.standing("leased")
	j.exec("UPDATE job_queue SET lease_until = now() - interval '1 hour', lost_leases = 99 WHERE job_id = $1", h.Job)
	j.exec("UPDATE job_lease SET lease_until = now() - interval '1 hour'")
	call(t, j.work, "fn_job_reap_expired()")
	require.Zero(t, get[int](j.core, "SELECT count(*) FROM job_queue WHERE status = 'leased'"))
	j.balanced()
	require.Equal(t, "42501", j.byHand("queue_owner", "DELETE FROM job_queue"))
	j.exec("SELECT fn_dot_config_set('webhook.max_attempts', '7', 'ann', 'test')")
	require.Zero(t, get[int](j.core, "SELECT count(*) FROM queue_operator_action WHERE target = 'webhook.max_attempts' AND reason LIKE '%by hand'"))
}
