# Packages of other suites of Debian, from the mirror that apt is configured with, in a root of its own below $folder; sourced
# by scripts/engines and scripts/peers. Nothing is installed.

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
kind=deb # deb-src: sources

# The mirror of the distribution's own suite, as apt has it.
mirror() {
    apt-get indextargets --format '$(REPO_URI) $(COMPONENT) $(IDENTIFIER) $(ORIGIN)' 2>/dev/null |
        awk '$2 == "main" && $3 == "Packages" && $4 == "Debian" && $1 !~ /security/ { print $1; exit }'
}

# apt with a root of its own, which knows of no installed package: a download brings the libraries along.
apt_of() { # SUITE command...
    local at=$folder/apt-$1
    shift
    "$@" -o Dir::Etc::sourcelist="$at/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
        -o Dir::State="$at/state" -o Dir::State::status="$at/status" -o Dir::Cache="$at/cache" -o APT::Sandbox::User=root \
        -o Debug::NoLocking=true
}

# The lists of a suite, not older than a day if the mirror answers. Experimental has only packages that differ from sid.
lists_of() { # SUITE
    local at=$folder/apt-$1 suite
    [ -n "$(find "$at/updated" -mmin -1440 2>/dev/null)" ] && return
    mkdir -p "$at/state/lists/partial" "$at/cache/archives/partial"
    : >"$at/status"
    for suite in "$1" $([ "$1" != experimental ] || echo sid); do
        echo "$kind [signed-by=$keyring] $(mirror) $suite main"
    done >"$at/sources.list"
    if apt_of "$1" apt-get -qq update -o APT::Update::Error-Mode=any >"$at/log" 2>&1; then touch "$at/updated"; fi
    [ -e "$at/updated" ]
}
