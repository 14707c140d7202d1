package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// release is the version of this source tree. The packages and the topmost
// released section of CHANGELOG.md have the same version.
const release = "v0.2.0"

// version is the release with the commit that the program was built from, as SemVer
// build metadata: v0.2.0+0123456789ab. Hosts record it, so that two builds of one
// release can be distinguished.
func version() string {
	if c := commit(); c != "" {
		return release + "+" + c
	}
	return release
}

// commit is the first 12 digits of the commit that the program was built from,
// with ".modified" if files differed from it; "" if the build had no git
// information.
func commit() string {
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return commitOf(bi.Settings)
}

// commitOf finds the commit in the build settings that Go records in a binary.
func commitOf(settings []debug.BuildSetting) string {
	revision, modified := "", ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = ".modified"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + modified
}

// versionLine is what --version prints and `qtop version` begins with.
func versionLine() string {
	built := runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
	if c := commit(); c != "" {
		built = "commit " + c + ", " + built
	}
	return fmt.Sprintf("qtop %s (%s)", release, built)
}
