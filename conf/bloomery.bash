# Completion of `bloomery` for bash. The tool itself says which commands and options it has.
_bloomery() {
    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}
    if [ "$COMP_CWORD" -eq 1 ] || { [ "$COMP_CWORD" -eq 2 ] && [ "$command" = help ]; }; then
        mapfile -t COMPREPLY < <(compgen -W "$(bloomery --help | sed -n 's/^  \([a-z]*\)  *[A-Z].*/\1/p')" -- "$word")
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(bloomery help "$command" 2>/dev/null | sed -n 's/^  \(-[-0a-z]*\).*/\1/p')" -- "$word")
    else
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}
complete -F _bloomery bloomery
