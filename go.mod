module github.com/qtop/qtop

go 1.26.0

require (
	charm.land/bubbles/v2 v2.1.1 // text inputs and key bindings of the console
	charm.land/bubbletea/v2 v2.0.9 // the console's terminal: input, rendering, the event loop
	charm.land/lipgloss/v2 v2.0.6 // styles and colours of the console
	github.com/charmbracelet/colorprofile v0.4.3 // which colours a terminal can show
	github.com/charmbracelet/x/ansi v0.11.8 // cell widths, wrapping and cutting of styled text
	github.com/charmbracelet/x/term v0.2.2 // the size of the terminal before the console starts
	github.com/charmbracelet/x/vt v0.0.0-20260316093931-f2fb44ab3145 // tests: the emulator of a terminal, to read what it shows
	github.com/creack/pty v1.1.24 // tests and soak: a terminal for the console
	github.com/google/uuid v1.6.0 // ids of hosts and requests
	github.com/jackc/pgx/v5 v5.12.0 // the PostgreSQL driver, its pool and notifications
	github.com/prometheus/client_golang v1.25.0 // the metrics endpoint
	github.com/rogpeppe/go-internal v1.16.0 // tests: testscript, the binary as its user sees it
	github.com/spf13/cobra v1.10.2 // verbs, flags, completions, man pages
	github.com/spf13/pflag v1.0.10 // flags of cobra, whose types are named in our code
	github.com/spf13/viper v1.21.0 // reading and layering settings (in config alone)
	github.com/standard-webhooks/standard-webhooks/libraries v0.0.1 // tests: checking our signatures with the reference
	github.com/stretchr/testify v1.12.1 // tests: assertions
	go.uber.org/goleak v1.3.0 // tests: finding goroutines that outlive a test
	go.yaml.in/yaml/v3 v3.0.5 // the configuration file with its lines (in config alone)
	golang.org/x/sync v0.24.0 // the weighted semaphore of a host's payloads, one call at a time for each program of a handler
	golang.org/x/sys v0.49.0 // parent-death signal and file locks of the private server, the room on a disk, how long a connection may stay without acknowledgement
)

require (
	github.com/atotto/clipboard v0.1.4 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/charmbracelet/ultraviolet v0.0.0-20260811164956-006e29f97886 // indirect
	github.com/charmbracelet/x/exp/ordered v0.1.0 // indirect
	github.com/charmbracelet/x/termios v0.1.1 // indirect
	github.com/charmbracelet/x/windows v0.2.2 // indirect
	github.com/clipperhouse/displaywidth v0.11.0 // indirect
	github.com/clipperhouse/uax29/v2 v2.7.0 // indirect
	github.com/cpuguy83/go-md2man/v2 v2.0.6 // indirect
	github.com/fsnotify/fsnotify v1.9.0 // indirect
	github.com/go-viper/mapstructure/v2 v2.4.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/lucasb-eyer/go-colorful v1.4.1 // indirect
	github.com/mattn/go-runewidth v0.0.24 // indirect
	github.com/muesli/cancelreader v0.2.2 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/pelletier/go-toml/v2 v2.2.4 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/russross/blackfriday/v2 v2.1.0 // indirect
	github.com/sagikazarmark/locafero v0.11.0 // indirect
	github.com/sourcegraph/conc v0.3.1-0.20240121214520-5f936abd7ae8 // indirect
	github.com/spf13/afero v1.15.0 // indirect
	github.com/spf13/cast v1.10.0 // indirect
	github.com/subosito/gotenv v1.6.0 // indirect
	github.com/xo/terminfo v0.0.0-20220910002029-abceb7e1c41e // indirect
	golang.org/x/text v0.42.0 // indirect
	golang.org/x/tools v0.49.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
