# Public headers (each compiled alone), the targets thinwire::thinwire and thinwire::torch, install, export.
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/thinwire)
get_property(layers GLOBAL PROPERTY THINWIRE_LAYERS)
set(torch_layers ${layers})
list(FILTER torch_layers INCLUDE REGEX "thinwire_train")
list(FILTER layers EXCLUDE REGEX "thinwire_train")

# thinwire::thinwire: codecs, groups, exchanges. Needs no libtorch.
file(GLOB public_headers CONFIGURE_DEPENDS include/thinwire/*.h)
list(FILTER public_headers EXCLUDE REGEX "/(torch|c10d)\\.h$")  # c10d.h: of the Python package alone
add_library(thinwire INTERFACE)
add_library(thinwire::thinwire ALIAS thinwire)
target_sources(thinwire INTERFACE FILE_SET HEADERS BASE_DIRS include FILES ${public_headers})
target_compile_features(thinwire INTERFACE cxx_std_20)
target_link_libraries(thinwire INTERFACE thinwire_sync thinwire_plan thinwire_pipeline thinwire_shrink thinwire_device)
set_target_properties(thinwire PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
install(TARGETS thinwire ${layers} EXPORT thinwireTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT thinwireTargets NAMESPACE thinwire:: DESTINATION ${package_folder})

# thinwire::torch: the trainers as well, for programs that have libtorch.
if(THINWIRE_WITH_TORCH)
  add_library(thinwire_torch INTERFACE)
  add_library(thinwire::torch ALIAS thinwire_torch)
  set_target_properties(thinwire_torch PROPERTIES EXPORT_NAME torch VERIFY_INTERFACE_HEADER_SETS ON)
  target_sources(thinwire_torch INTERFACE FILE_SET HEADERS BASE_DIRS include
                                          FILES include/thinwire/torch.h)
  target_link_libraries(thinwire_torch INTERFACE thinwire thinwire_train torch)
  thinwire_libstdcxx_first(thinwire_torch)
  install(TARGETS thinwire_torch ${torch_layers} EXPORT thinwireTorchTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT thinwireTorchTargets NAMESPACE thinwire:: DESTINATION ${package_folder})
endif()

configure_package_config_file(cmake/thinwireConfig.cmake.in thinwireConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(thinwireConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/thinwireConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/thinwireConfigVersion.cmake
        DESTINATION ${package_folder})
