// Package schema installs, inspects and removes the SQL objects of qtop in a
// PostgreSQL database.
//
// Its folder holds the SQL of one release:
//
//	migrations/NNN_name.sql  tables, types, indexes, constraints; numbered, never changed once released
//	code/subject.sql         functions, views, triggers, grants, comments; each once, in its current form
//	seeds.sql                rows that the code needs; can run again at any time
//	rows.txt                 their keys, by which missing rows are found
//	moves/NNN_name.sql       bulk changes of data after a migration, in batches
//	release.txt              the number of this code, and the oldest code number whose programs still work with it
//
// [Load] reads them into a [Release]; [Current] is the release of this program.
// [Up] brings a database to it in one transaction: it runs the pending migrations,
// replaces the objects of the code that differ from the installed ones, and runs
// the seeds. [Down] removes everything again. [GetStatus] and [Release.Differences]
// read how a database differs from the release.
//
// To find the objects that differ, each run of [Up] records two hashes per installed object in
// qtop_schema_object: the hash of its source text, and the hash of its text in the catalogue. So an
// edited function reaches every installed database, an object that somebody changed is found and
// repaired, and unchanged objects are not touched: replacing a trigger needs a lock that would stop
// all writers while it waits for one open transaction.
//
// Objects are owned by the NOLOGIN role queue_owner; the migrator needs CREATEROLE
// (or existing roles) and membership in queue_owner. The SQL has placeholders for
// role names and lists of words, see expand.
package schema
