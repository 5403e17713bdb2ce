# libtorch from the pinned wheel, the train layer on top of it, and the program.
#
# The wheel is found in .venv, where ./x puts it; set CMAKE_PREFIX_PATH for another libtorch.
file(GLOB torch_roots ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
list(APPEND CMAKE_PREFIX_PATH ${torch_roots})
find_package(Torch REQUIRED)
# Wheels are built with NDEBUG, without which headers give at::RecordFunction another layout.
target_compile_definitions(torch INTERFACE NDEBUG)
thinwire_libstdcxx_first(torch)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
find_package(ZLIB REQUIRED)
find_package(LibLZMA REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_library(SNDFILE_LIBRARY sndfile REQUIRED)

# Data sets that ship with thinwire: found in the source tree and where they are installed.
set_source_files_properties(
  ${PROJECT_SOURCE_DIR}/src/train/data/data_places.cc
  PROPERTIES COMPILE_DEFINITIONS
             "THINWIRE_SOURCE_DATA=\"${PROJECT_SOURCE_DIR}/data\";THINWIRE_INSTALLED_DATA=\"${CMAKE_INSTALL_FULL_DATADIR}/thinwire\"")

thinwire_layer(train BELOW sync plan pipeline shrink PRIVATE_LIBS torch ZLIB::ZLIB LibLZMA::LibLZMA
                                                        OpenSSL::Crypto ${SNDFILE_LIBRARY})
target_compile_options(thinwire_train PRIVATE -Wno-shadow)
# A file that includes libtorch takes 20 s to compile, with the precompiled header half of that. For
# one that does not, loading it would cost 8 s. Tests share it, which asks for the layer's own flags.
target_precompile_headers(thinwire_train PRIVATE <torch/torch.h>)
set(train_targets thinwire_train)
if(THINWIRE_TESTS)
  list(APPEND train_targets train_tests)
  set_target_properties(train_tests PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(train_tests PRIVATE -Wno-shadow -fPIC)
  target_precompile_headers(train_tests REUSE_FROM thinwire_train)
endif()
foreach(target IN LISTS train_targets)
  get_target_property(sources ${target} SOURCES)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/join_sources.py with-torch
                          ${PROJECT_SOURCE_DIR} -- ${sources}
                  OUTPUT_VARIABLE with_torch COMMAND_ERROR_IS_FATAL ANY)
  list(REMOVE_ITEM sources ${with_torch})
  set_source_files_properties(${sources} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
endforeach()

if(THINWIRE_TESTS)
  set_tests_properties(train/published_data_test PROPERTIES LABELS published-data
                                                            SKIP_REGULAR_EXPRESSION "SKIPPED")
endif()

install(DIRECTORY data/ DESTINATION ${CMAKE_INSTALL_DATADIR}/thinwire)

add_subdirectory(cli)
