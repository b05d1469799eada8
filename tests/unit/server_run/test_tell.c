/* Reports of other clients' commands, by MONITOR. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

TestSuite(tell, .timeout = 3000);

/* Every command is shown once, in the order of its connection, in every way of execution; passwords are not shown. */
RIG_TEST(tell, a_monitor_sees_each_command_once)
{
    static const char *const shown[] = {"\"BF.ADD\" \"f\" \"1\"",
                                        "\"BF.ADD\" \"f\" \"2\"",
                                        "\"BF.EXISTS\" \"f\" \"1\"",
                                        "\"BF.MERGE\" \"g\" \"f\"",
                                        "\"MULTI\"",
                                        "\"EXEC\"",
                                        "\"PING\" \"the-end\""};
    rig_begin(2, NULL, NULL);
    int monitor = rig_connect(1), client = rig_connect(0);
    rig_call(monitor, "MONITOR", "+OK\r\n");
    rig_hold();
    rig_request(&rig_requests, "BF.ADD f 1");
    rig_request(&rig_requests, "BF.ADD f 2");
    rig_request(&rig_requests, "BF.EXISTS f 1");
    rig_request(&rig_requests, "BF.MERGE g f");
    rig_request(&rig_requests, "AUTH default very-secret");
    rig_request(&rig_requests, "MULTI");
    rig_request(&rig_requests, "BF.CARD f");
    rig_request(&rig_requests, "BF.CARD g");
    rig_request(&rig_requests, "EXEC");
    rig_request(&rig_requests, "PING the-end");
    rig_send_buf(client, &rig_requests);
    rig_let_go();
    rig_expect(client, ":1\r\n:1\r\n:1\r\n+OK\r\n");

    char text[4096] = "";
    for (size_t have = 0; !strstr(text, "the-end\"\r\n"); have++) {
        char *byte = rig_read(monitor, 1);
        cr_assert_lt(have, sizeof(text) - 1);
        text[have] = byte[0];
        free(byte);
    }
    const char *at = text;
    for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
        const char *found = strstr(at, shown[i]);
        cr_assert_not_null(found, "'%s' is missing in its place: %s", shown[i], text);
        cr_assert_null(strstr(found + 1, shown[i]), "'%s' is shown twice: %s", shown[i], text);
        at = found;
    }
    cr_assert_null(strstr(text, "very-secret"));
}
