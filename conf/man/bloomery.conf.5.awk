# bloomery.conf(5) from conf/bloomery.conf, whose comments describe every setting:
#
#   awk -v version=V -v date=YYYY-MM-DD -f bloomery.conf.5.awk conf/bloomery.conf >bloomery.conf.5

function roff(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    gsub(/'/, "\\(aq", text)
    gsub(/"/, "\\(dq", text)
    sub(/^\./, "\\\\\\&.", text)
    return text
}

# The comment lines so far: paragraphs, the last of which may be [range; default; remark].
function print_comment(   i) {
    for (i = 1; i <= count; i++)
        print (lines[i] == "" ? ".PP" : roff(lines[i]))
    count = 0
}

BEGIN {
    printf ".TH BLOOMERY.CONF 5 \"%s\" \"bloomery %s\" \"File formats\"\n", date, version
    print ".SH NAME\nbloomery.conf \\- settings of bloomeryd"
    print ".SH DESCRIPTION"
}

/^# ---- .* ----$/ {
    print_comment()
    section = substr($0, 8, length($0) - 12)
    print ".SH " toupper(roff(section))
    next
}
/^# *$/ { lines[++count] = ""; next }
/^# / { lines[++count] = substr($0, 3); next }
/^$/ {
    if (!settings)
        print_comment()
    next
}
{
    settings = 1
    print ".TP"
    print ".B " roff($0)
    for (i = 1; i <= count; i++) {
        if (lines[i] ~ /^\[/)
            print ".br"
        print (lines[i] == "" ? ".IP" : roff(lines[i]))
    }
    count = 0
}

END {
    print_comment()
    print ".SH SEE ALSO\n.BR bloomeryd (1),\n.BR bloomery (1)"
}
