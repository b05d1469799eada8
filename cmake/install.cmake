# `cmake --install` copies these beside the programs: settings, unit, licence. The paths in them follow from the prefix;
# /usr has its settings in /etc, /usr/local in /usr/local/etc. Data are in /var/lib always, where systemd makes the directory.
set(BLOOMERY_CONF_DIR "${CMAKE_INSTALL_FULL_SYSCONFDIR}/bloomery")
set(BLOOMERY_DATA_DIR "/var/lib/bloomery" CACHE PATH "The data directory of the installed settings")

file(READ ${PROJECT_SOURCE_DIR}/conf/bloomery.conf conf)
string(REPLACE "\ndir ./data\n" "\ndir ${BLOOMERY_DATA_DIR}\n" installed_conf "${conf}")
if(installed_conf STREQUAL conf)
  message(FATAL_ERROR "conf/bloomery.conf has no line 'dir ./data'")
endif()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/conf/bloomery.conf CONTENT "${installed_conf}" @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/conf/bloomery.service.in ${PROJECT_BINARY_DIR}/conf/bloomery.service @ONLY)

# The settings may have been edited, and hold a password: they are not replaced, and not readable by all users. The ones of
# this version lie beside the licence, to compare with.
install(CODE "
  set(conf \"\$ENV{DESTDIR}${BLOOMERY_CONF_DIR}/bloomery.conf\")
  if(EXISTS \"\${conf}\")
    message(STATUS \"Kept: \${conf}\")
  else()
    file(INSTALL DESTINATION \"${BLOOMERY_CONF_DIR}\" TYPE FILE PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ
      FILES \"${PROJECT_BINARY_DIR}/conf/bloomery.conf\")
  endif()")
install(FILES ${PROJECT_BINARY_DIR}/conf/bloomery.service DESTINATION lib/systemd/system)
sbom(${PROJECT_BINARY_DIR}/conf/bloomery.spdx.json ${BLOOMERY_LIBRARIES})
install(FILES ${PROJECT_BINARY_DIR}/conf/bloomery.conf ${PROJECT_BINARY_DIR}/conf/bloomery.spdx.json ${PROJECT_SOURCE_DIR}/conf/bloomery-alerts.yml
  ${PROJECT_SOURCE_DIR}/conf/bloomery-dashboard.json ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
