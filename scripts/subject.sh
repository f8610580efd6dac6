#!/usr/bin/env bash
# Checks the subject of a commit's message: scripts/subject.sh FILE. It names an area, and has at most 72 characters.
set -euo pipefail
subject=$(head -n 1 "$1")
if [[ $subject =~ ^(Merge|Revert|fixup!|squash!)\  ]]; then
    exit 0
fi
if ((${#subject} > 72)) || ! [[ $subject =~ ^[a-z][a-z0-9\ -]*:\ [A-Za-z].*[^.]$ ]]; then
    echo "the subject is '$subject', expected 'area: what the commit does' with at most 72 characters and no full stop" >&2
    exit 1
fi
