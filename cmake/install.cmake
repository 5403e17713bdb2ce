# Public headers (each compiled alone), the umbrella target thinwire::thinwire, install and export.
include(CMakePackageConfigHelpers)

file(GLOB public_headers CONFIGURE_DEPENDS include/thinwire/*.h)
if(NOT THINWIRE_WITH_TORCH)
  list(FILTER public_headers EXCLUDE REGEX "/torch\\.h$")
endif()

add_library(thinwire INTERFACE)
add_library(thinwire::thinwire ALIAS thinwire)
target_sources(thinwire INTERFACE FILE_SET HEADERS BASE_DIRS include FILES ${public_headers})
target_link_libraries(thinwire INTERFACE thinwire_exchange)
set_target_properties(thinwire PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)

get_property(layers GLOBAL PROPERTY THINWIRE_LAYERS)
install(TARGETS thinwire thinwire_flags ${layers} EXPORT thinwireTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT thinwireTargets NAMESPACE thinwire:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/thinwire)
configure_package_config_file(cmake/thinwireConfig.cmake.in thinwireConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/thinwire)
write_basic_package_version_file(thinwireConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/thinwireConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/thinwireConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/thinwire)
