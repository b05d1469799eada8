# Settings and log: a library of their own, so that their tests need no event loop.
bloomery_room(server_config
  SOURCES config.c config_value.c config_file.c config_args.c config_limits.c config_rewrite.c log.c notify_flags.c
  DEPENDS proto bloomcore)
