// Package schema installs, inspects and removes what qtop keeps in PostgreSQL.
//
// Its folder holds the SQL of one release:
//
//	migrations/NNN_name.sql  tables, types, indexes, constraints; numbered, frozen once released
//	code/subject.sql         functions, views, triggers, grants, comments; each once, in its current form
//	seeds.sql                rows that the code relies on; may run again at any time
//	moves/NNN_name.sql       bulk moves of data after a migration, in batches
//	release.txt              the number of the code, and whom it still serves
//
// [Load] reads them into a [Release]; [Current] is this program's own. [Up] brings
// a database to it in one transaction: pending migrations, then the objects of the
// code that differ from what is installed, then the seeds. Which objects differ is
// told by two hashes that the last migration recorded for each of them in
// qtop_schema_object: of the text that declared it, and of what the catalogue made
// of it. So an edited function reaches every installed database, an object that
// somebody changed by hand is seen and repaired, and what has not changed is not
// touched: replacing a trigger would stop every writer behind one open transaction.
//
// Objects are owned by the NOLOGIN role queue_owner; the migrator needs CREATEROLE
// (or the roles made beforehand) and membership in it. Role names and lists of
// words stand in the SQL as placeholders, see expand.
package schema
