/* handlers: the functions of the rows of the command table. Each runs one call: it reads the arguments, whose number
 * fits the row's arity, and writes one reply, or defers (command_defer()). Thread: the worker's, in an RCU read
 * section. */
#ifndef BLOOMERY_HANDLERS_H
#define BLOOMERY_HANDLERS_H

struct command_ctx;

#define HANDLER(name) void name(struct command_ctx *ctx)

/* command.c: HELP of a command with subcommands, out of their rows */
HANDLER(cmd_help);

/* filters/ */
#define BF_HANDLER(name) HANDLER(cmd_bf_##name);
#include "bf_commands.def"
#undef BF_HANDLER

#define CF_HANDLER(name) HANDLER(cmd_cf_##name);
#include "cf_commands.def"
#undef CF_HANDLER

/* cmd_bf_import.c */
HANDLER(cmd_bf_import);

/* cmd_bf_find.c */
HANDLER(cmd_bf_find);

/* cmd_dump.c */
HANDLER(cmd_dump);
HANDLER(cmd_restore);
HANDLER(cmd_copy);

/* cmd_keys.c */
HANDLER(cmd_del);
HANDLER(cmd_exists);
HANDLER(cmd_touch);
HANDLER(cmd_type);
HANDLER(cmd_dbsize);
HANDLER(cmd_rename);
HANDLER(cmd_renamenx);
HANDLER(cmd_flushall);
HANDLER(cmd_flushdb);
HANDLER(cmd_move);
HANDLER(cmd_swapdb);

/* cmd_scan.c */
HANDLER(cmd_scan);
HANDLER(cmd_keys);
HANDLER(cmd_randomkey);

/* cmd_expire.c */
HANDLER(cmd_expire);
HANDLER(cmd_pexpire);
HANDLER(cmd_expireat);
HANDLER(cmd_pexpireat);
HANDLER(cmd_ttl);
HANDLER(cmd_pttl);
HANDLER(cmd_expiretime);
HANDLER(cmd_pexpiretime);
HANDLER(cmd_persist);

/* cmd_object.c */
HANDLER(cmd_object_encoding);
HANDLER(cmd_object_freq);
HANDLER(cmd_object_idletime);
HANDLER(cmd_object_refcount);
HANDLER(cmd_memory_usage);

/* cmd_server.c */
HANDLER(cmd_save);
HANDLER(cmd_bgrewriteaof);
HANDLER(cmd_bgsave);
HANDLER(cmd_lastsave);
HANDLER(cmd_shutdown);
HANDLER(cmd_time);

/* cmd_info.c */
HANDLER(cmd_info);

/* cmd_config.c */
HANDLER(cmd_config_get);
HANDLER(cmd_config_set);
HANDLER(cmd_config_resetstat);
HANDLER(cmd_config_rewrite);

/* cmd_connection.c */
HANDLER(cmd_ping);
HANDLER(cmd_echo);
HANDLER(cmd_hello);
HANDLER(cmd_auth);
HANDLER(cmd_select);
HANDLER(cmd_quit);
HANDLER(cmd_reset);

/* transaction.c */
HANDLER(cmd_multi);
HANDLER(cmd_exec);
HANDLER(cmd_discard);
HANDLER(cmd_watch);
HANDLER(cmd_unwatch);

/* cmd_client.c */
HANDLER(cmd_client_id);
HANDLER(cmd_client_getname);
HANDLER(cmd_client_setname);
HANDLER(cmd_client_setinfo);
HANDLER(cmd_client_info);
HANDLER(cmd_client_list);
HANDLER(cmd_client_kill);
HANDLER(cmd_client_reply);
HANDLER(cmd_client_pause);
HANDLER(cmd_client_unpause);
HANDLER(cmd_client_unblock);
HANDLER(cmd_client_no_evict);
HANDLER(cmd_client_no_touch);
HANDLER(cmd_client_tracking);

/* cmd_pubsub.c */
HANDLER(cmd_publish);
HANDLER(cmd_spublish);
HANDLER(cmd_subscribe);
HANDLER(cmd_unsubscribe);
HANDLER(cmd_psubscribe);
HANDLER(cmd_punsubscribe);
HANDLER(cmd_ssubscribe);
HANDLER(cmd_sunsubscribe);
HANDLER(cmd_pubsub_channels);
HANDLER(cmd_pubsub_numpat);
HANDLER(cmd_pubsub_numsub);
HANDLER(cmd_pubsub_shardchannels);
HANDLER(cmd_pubsub_shardnumsub);
HANDLER(cmd_monitor);

/* cmd_command.c */
HANDLER(cmd_command);
HANDLER(cmd_command_count);
HANDLER(cmd_command_docs);
HANDLER(cmd_command_getkeys);
HANDLER(cmd_command_getkeysandflags);
HANDLER(cmd_command_info);
HANDLER(cmd_command_list);
HANDLER(cmd_module_list);

/* cmd_admin.c */
HANDLER(cmd_cluster_countkeysinslot);
HANDLER(cmd_cluster_getkeysinslot);
HANDLER(cmd_cluster_help);
HANDLER(cmd_cluster_info);
HANDLER(cmd_cluster_keyslot);
HANDLER(cmd_cluster_links);
HANDLER(cmd_cluster_mode);
HANDLER(cmd_cluster_myid);
HANDLER(cmd_cluster_nodes);
HANDLER(cmd_cluster_replicas);
HANDLER(cmd_cluster_shards);
HANDLER(cmd_cluster_slots);
HANDLER(cmd_debug);
HANDLER(cmd_failover);
HANDLER(cmd_module_refused);
HANDLER(cmd_replicaof);
HANDLER(cmd_role);
HANDLER(cmd_wait);
HANDLER(cmd_waitaof);

/* cmd_acl.c */
HANDLER(cmd_acl_cat);
HANDLER(cmd_acl_dryrun);
HANDLER(cmd_acl_genpass);
HANDLER(cmd_acl_getuser);
HANDLER(cmd_acl_list);
HANDLER(cmd_acl_log);
HANDLER(cmd_acl_setuser);
HANDLER(cmd_acl_deluser);
HANDLER(cmd_acl_load);
HANDLER(cmd_acl_save);
HANDLER(cmd_acl_users);
HANDLER(cmd_acl_whoami);

/* cmd_slowlog.c */
HANDLER(cmd_latency_histogram);
HANDLER(cmd_latency_latest);
HANDLER(cmd_slowlog_get);
HANDLER(cmd_slowlog_len);
HANDLER(cmd_slowlog_reset);

#undef HANDLER

struct reply;

/* The reply of MODULE LIST; also a part of HELLO. */
void reply_modules(struct reply *reply);

#endif
