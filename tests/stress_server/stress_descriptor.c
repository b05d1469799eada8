/* The end of a daemon under ThreadSanitizer: the saver lists a directory when a worker's loop has just been closed.
 * The directory then has the number of the loop's descriptor; this is no race with the worker. */
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "fsops.h"
#include "stress.h"

static uv_loop_t loop;
static int loop_fd;
static atomic_bool is_closed; /* relaxed: it orders nothing, just as the worker's end does not for the saver */

static void end_timer(uv_timer_t *timer)
{
    uv_close((uv_handle_t *)timer, NULL);
}

static void *worker(void *arg)
{
    uv_timer_t timer;
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, end_timer, 1, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    return arg;
}

static void *saver(void *arg)
{
    while (!atomic_load_explicit(&is_closed, memory_order_relaxed))
        usleep(1000);
    DIR *dir = fs_open_dir("/");
    EXPECT(dir, "no directory");
    EXPECT(dirfd(dir) == loop_fd, "%d instead of %d", dirfd(dir), loop_fd);
    closedir(dir);
    return arg;
}

static void *ender(void *arg)
{
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, worker, NULL) == 0, "no thread");
    pthread_join(thread, NULL);
    EXPECT(uv_loop_close(&loop) == 0, "the loop is in use");
    atomic_store_explicit(&is_closed, true, memory_order_relaxed);
    return arg;
}

int main(void)
{
    EXPECT(uv_loop_init(&loop) == 0, "no loop");
    loop_fd = uv_backend_fd(&loop);
    run_threads((void *(*const[])(void *)){saver, ender}, 2);
    return 0;
}
