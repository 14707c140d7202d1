// Package pgscan is how values of PostgreSQL become values of this program: texts,
// times, and the answers of the schema's functions.
package pgscan

// Refusal is the shape in which the functions of the schema say no.
type Refusal struct {
	Refused bool   `json:"refused"`
	Reason  string `json:"reason"`
	Rule    string `json:"rule"`
	AuditID int64  `json:"audit_id"`
}
