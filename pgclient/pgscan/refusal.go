// Package pgscan converts values of PostgreSQL to values of this program: texts, times, and the
// answers of the schema's functions.
package pgscan

// Refusal is the part of a JSON answer in which the functions of the schema refuse a request.
type Refusal struct {
	Refused bool   `json:"refused"`
	Reason  string `json:"reason"`   // in words, for an operator; empty = not refused
	Rule    string `json:"rule"`     // a code such as not_found
	AuditID int64  `json:"audit_id"` // the audit row of the refusal; 0 = none was written
}
