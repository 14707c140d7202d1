# shellcheck shell=sh
# Read by scripts with `. .ci/alone.sh`: the settings of qtop in the environment are not for tests and documents, nor
# are variables of libpq unless they belong to QTOP_TEST_DSN.
for name in DATABASE_URL $(env | sed -n 's/^\(QTOP_[A-Z_]*\)=.*/\1/p; s/^\(PG[A-Z]*\)=.*/\1/p'); do
	case $name in
	QTOP_TEST_* | QTOP_PG_* | QTOP_OFFLINE | QTOP_WALK_SEED) ;;
	PG*) [ -n "${QTOP_TEST_DSN:-}" ] || unset "$name" ;;
	*) unset "$name" ;;
	esac
done

# keys ARG…: qtop keys, without the configuration file of this user.
keys() {
	go run -exec 'env XDG_CONFIG_HOME=/nonexistent' ./cmd/qtop keys "$@"
}
