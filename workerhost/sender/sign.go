package sender

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
)

// maxID is the greatest length of an id in bytes, far above the length of the ids that qtop
// makes.
const maxID = 512

func signingFailed(detail string) error { return &failure{code: CodeSigningFailed, detail: detail} }

// checkID refuses ids that would break the header line or the signed text. The specification
// forbids the full stop: if ids could contain it, two different messages could have the same
// signed text.
func checkID(id string) error {
	if id == "" || len(id) > maxID {
		return signingFailed("the webhook-id is empty or longer than 512 bytes")
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c >= 0x7f || c == '.' {
			return signingFailed("the webhook-id holds a character other than visible ASCII without full stop")
		}
	}
	return nil
}

// sign returns the value of webhook-signature by the Standard Webhooks specification: one v1
// signature per secret over id.timestamp.body, separated by spaces.
func sign(id string, timestamp int64, body []byte, secrets [][]byte) (string, error) {
	if len(secrets) == 0 {
		return "", signingFailed("the list of secrets is empty")
	}
	head := append(strconv.AppendInt([]byte(id+"."), timestamp, 10), '.')
	var value strings.Builder
	for i, secret := range secrets {
		if len(secret) == 0 {
			return "", signingFailed("secret " + strconv.Itoa(i+1) + " is empty")
		}
		mac := hmac.New(sha256.New, secret)
		mac.Write(head)
		mac.Write(body)
		if i > 0 {
			value.WriteByte(' ')
		}
		value.WriteString("v1,")
		value.WriteString(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return value.String(), nil
}
