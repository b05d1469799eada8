/* ports: ports of 127.0.0.1 for what a test starts. They are below those that the kernel gives to connections, and no
 * two tests have the same one at a time: between the look and the daemon's bind() nobody takes it.
 * tests/support/ports.py gives others of the same kind; who has one holds the same name.
 *
 * Thread: one at a time. */
#ifndef BLOOMERY_TEST_PORTS_H
#define BLOOMERY_TEST_PORTS_H

/* A port that is free. It is this process' until it ends, or has asked for 64 more. Fails the test when there is none.
 */
int port_claim(void);

#endif
