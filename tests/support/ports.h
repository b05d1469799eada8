/* ports: ports of 127.0.0.1 for servers that a test starts. They are below the range that the kernel gives to
 * connections. No two tests have the same port at a time, so no test takes a port before the daemon's bind().
 * tests/support/ports.py claims ports in the same way.
 *
 * Thread: one at a time. */
#pragma once

/* Claims a free port for this process, until the process ends or has claimed 64 more. Fails the test if none is free.
 */
int port_claim(void);
