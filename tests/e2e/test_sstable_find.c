/* `bloomery find` against a daemon that watches a directory: the same result as against the directory. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "program.h"
#include "sstables_rig.h"

TestSuite(sstable_find, .fini = discard, .timeout = 3000);

#define TOOL "'" BLOOMERY_TOOL_PATH "' "

static char output[65536]; /* stdout and stderr */

#define ASSERT_RUN(code, text, ...) program_expect(output, sizeof(output), code, text, __VA_ARGS__)

/* A filter of int:<first> to int:<last>. */
static void make_filter(const char *path, int first, int last)
{
    make_directories(below_root(path));
    ASSERT_RUN(0, "",
               "seq -f 'int:%%.0f' %d %d | " TOOL "build '%s' --keys --error 1e-9 --capacity 2000 && echo Filter.db "
               ">\"$(echo '%s' | sed s/Filter.db/TOC.txt/)\"",
               first, last, below_root(path), below_root(path));
}

static void start_with_two(void)
{
    prepare();
    make_filter("data/ks/t-" ID "/nb-1-big-Filter.db", 1, 1000);
    make_filter("data/ks/t-" ID "/nb-2-big-Filter.db", 900, 2000);
    start();
}

static size_t count_lines(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

#define FIND TOOL "find redis://127.0.0.1:%d "

DAEMON_TEST(the_daemon, sstable_find, answers_are_those_of_the_directory)
{
    start_with_two();
    const int port = the_daemon.port;
    ASSERT_RUN(0, "ks.t/1\nks.t/2\n", FIND "int:950", port);
    cr_expect_str_eq(output, "ks.t/1\nks.t/2\n");
    ASSERT_RUN(0, "int:7\tks.t/1\n", FIND "int:7 int:3000", port);
    cr_expect_eq(count_lines(output), 1, "%s", output);
    ASSERT_RUN(1, "", FIND "int:3000", port);
    cr_expect_str_empty(output);
    ASSERT_RUN(0, "[{\"key\":\"int:7\",\"name\":\"ks.t/1\",\"filter\":\"may hold it\"}]", FIND "int:7 --json", port);
    ASSERT_RUN(0, "int:3000\n", FIND "--absent int:3000 int:7", port);
    cr_expect_eq(count_lines(output), 1, "%s", output);
    ASSERT_RUN(1, "", FIND "--absent int:7", port);
    ASSERT_RUN(0, "ks.t/2\n", FIND "--names ks.t/2 int:950", port);
    cr_expect_eq(count_lines(output), 1, "%s", output);

    static char of_server[65536];
    ASSERT_RUN(0, "int:900\tnb-2\n",
               "seq -f 'int:%%.0f' 500 3000 | " FIND "--keys-from - | sed 's-ks.t/-nb-;s/nb/nb-/' | sort", port);
    strcpy(of_server, output);
    ASSERT_RUN(0, "", "seq -f 'int:%%.0f' 500 3000 | " TOOL "find %s --keys-from - | sed 's-/.*/--;s/-big.*//' | sort",
               root);
    cr_expect_str_eq(output, of_server);
    cr_expect_eq(count_lines(output), 501 + 1101);
    ASSERT_RUN(0, "int:2001\n", "seq -f 'int:%%.0f' 5000 | " FIND "--keys-from - --absent", port);
    cr_expect_eq(count_lines(output), 3000, "%zu", count_lines(output));
}

/* An SSTable without a usable filter is not ruled out: silently if it has none, with an error if it is damaged. */
DAEMON_TEST(the_daemon, sstable_find, what_cannot_be_ruled_out_is_printed)
{
    start_with_two();
    const int port = the_daemon.port;
    write_data("data/ks/t-" ID "/nb-3-big-Data.db");
    write_toc("data/ks/t-" ID "/nb-3-big-Filter.db");
    wait_for("[\"ks.t/1\",\"ks.t/2\",\"ks.t/3\"]", "KEYS *");
    ASSERT_RUN(0, "int:7\tks.t/3\n", FIND "int:7 int:3000", port);
    cr_expect_eq(count_lines(output), 3, "%s", output);
    ASSERT_RUN(0, "\"name\":\"ks.t/3\",\"filter\":\"missing\"", FIND "int:3000 --json", port);
    ASSERT_RUN(1, "", FIND "int:3000 --absent", port);
    write_sstable("data/ks/t-" ID "/nb-4-big-Filter.db", "12345", 5);
    wait_for("[\"ks.t/1\",\"ks.t/2\",\"ks.t/3\",\"ks.t/4\"]", "KEYS *");
    ASSERT_RUN(2, "; it may hold the key", "seq -f 'int:%%.0f' 3001 4000 | " FIND "--keys-from - 2>&1 >/dev/null",
               port);
    cr_expect_eq(count_lines(output), 1, "told once: %s", output);
    ASSERT_RUN(2, "int:3000\tks.t/4\n", FIND "int:3000 int:7 2>/dev/null", port);
    cr_expect_eq(count_lines(output), 5, "%s", output);
    ASSERT_RUN(2, "", FIND "--absent int:3000 2>/dev/null", port);
    cr_expect_str_empty(output);
}

DAEMON_TEST(the_daemon, sstable_find, what_is_wrong_is_said)
{
    start_with_two();
    const int port = the_daemon.port;
    ASSERT_RUN(2, "none/*: no filter matches", FIND "--names 'none/*' int:1", port);
    ASSERT_RUN(2, "none: not found", FIND "--names none int:1", port);
    ASSERT_RUN(2, "", FIND "--names none --absent int:1 2>/dev/null", port);
    cr_expect_str_empty(output);
    ASSERT_RUN(2, "the key 'x': write a key as <type>:<value>", FIND "x", port);
    ASSERT_RUN(2, "line 2: 'x' is not an integer", "printf 'int:1\\nint:x\\n' | " FIND "--keys-from -", port);
    ASSERT_RUN(2, "--all is for a directory", FIND "--all int:1", port);
    ASSERT_RUN(2, "--names is for a server", TOOL "find %s --names x int:1", root);
    ASSERT_RUN(2, "--insecure needs TLS", TOOL "find %s --insecure int:1", root);
    ASSERT_RUN(2, "redis://127.0.0.1:1: ", TOOL "find redis://127.0.0.1:1 int:1");
    expect(client, "+OK", "ACL SETUSER default -bf.find");
    ASSERT_RUN(2, "answers: NOPERM", FIND "int:1", port);
}

/* A server with another reply to BF.FIND: an error in every case. */
Test(sstable_find, replies_of_other_servers)
{
    static const char script[] =
        "import random, socket, subprocess, sys, threading\n"
        "whole = b'*8\\r\\n$5\\r\\nasked\\r\\n:2\\r\\n$5\\r\\nfound\\r\\n*2\\r\\n*1\\r\\n$1\\r\\na\\r\\n*0\\r\\n'\n"
        "whole += b'$7\\r\\nunknown\\r\\n*2\\r\\n$1\\r\\nb\\r\\n$3\\r\\nwhy\\r\\n$5\\r\\nround\\r\\n:1\\r\\n'\n"
        "socket.setdefaulttimeout(60)\n"
        "listener = socket.create_server(('127.0.0.1', 0))\n"
        "def ask(reply):\n"
        "    def serve():\n"
        "        with listener.accept()[0] as client:\n"
        "            client.recv(65536)\n"
        "            client.sendall(reply)\n"
        "            client.shutdown(socket.SHUT_WR)\n"
        "            while client.recv(65536):\n"
        "                pass\n"
        "    thread = threading.Thread(target=serve)\n"
        "    thread.start()\n"
        "    done = subprocess.run([sys.argv[1], 'find', 'redis://127.0.0.1:%d' % listener.getsockname()[1], 'int:1', "
        "'int:2'], capture_output=True)\n"
        "    thread.join()\n"
        "    return done.returncode, done.stdout + done.stderr\n"
        "assert ask(whole) == (2, b'int:1\\ta\\nint:1\\tb\\nint:2\\tb\\nbloomery find: redis://127.0.0.1:%d: b: why; "
        "it may hold the key\\n' % listener.getsockname()[1]), ask(whole)\n"
        "for reply in (b'+OK', b'*0', b':1', b'*2\\r\\n$5\\r\\nfound\\r\\n:1', b'*1\\r\\n$5\\r\\nfound', "
        "b'*2\\r\\n$5\\r\\nfound\\r\\n*2\\r\\n*0\\r\\n*0', "
        "b'*4\\r\\n$5\\r\\nfound\\r\\n*1\\r\\n*0\\r\\n$7\\r\\nunknown\\r\\n*0'):\n"
        "    code, text = ask(reply + b'\\r\\n')\n"
        "    assert code == 2 and b'unexpected reply to BF.FIND' in text, (reply, code, text)\n"
        "random.seed(25)\n"
        "for i in range(150):\n"
        "    reply = bytearray(whole)\n"
        "    for j in range(random.randint(1, 3)):\n"
        "        reply[random.randrange(len(reply))] = random.choice(b'*$:+-0123456789\\r\\n' + bytes([i]))\n"
        "    code, text = ask(bytes(reply[:random.choice((i, 999))]))\n"
        "    assert code in (0, 1, 2), (reply, code, text)\n";
    FILE *file;
    prepare();
    cr_assert_not_null(file = fopen(below_root("others.py"), "w"));
    cr_assert_eq(fwrite(script, 1, strlen(script), file), strlen(script));
    cr_assert_eq(fclose(file), 0);
    ASSERT_RUN(0, "", "python3 %s '" BLOOMERY_TOOL_PATH "'", below_root("others.py"));
    cr_expect_str_empty(output);
}
