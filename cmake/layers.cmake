# thinwire_joined(<variable> <name> <sources>...)
#
# Sets the variable to files, made by tools/join_sources.py, that include several of the sources each, because
# most of the time of compiling a file is reading its headers. Sources with definitions of their own stay
# alone. When a source changed, the files are made again before they are compiled.
function(thinwire_joined variable name)
  if(NOT THINWIRE_JOIN_SOURCES)
    set(${variable} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(alone "")
  set(sources "")
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source)
    get_source_file_property(own ${source} COMPILE_DEFINITIONS)
    if(own)
      list(APPEND alone ${source})
    else()
      list(APPEND sources ${source})
    endif()
  endforeach()
  set(tool ${PROJECT_SOURCE_DIR}/tools/join_sources.py)
  set(folder ${PROJECT_BINARY_DIR}/joined/${name})
  # At most: with libtorch, half a minute of compiling and 1.5 GB of memory.
  set(lines 1500)
  set(write ${Python3_EXECUTABLE} ${tool} write ${folder} ${PROJECT_SOURCE_DIR} ${lines})
  execute_process(COMMAND ${write} -- ${sources} OUTPUT_VARIABLE counts COMMAND_ERROR_IS_FATAL ANY)
  set(joined "")
  set(kinds torch plain)
  foreach(kind count IN ZIP_LISTS kinds counts)
    set(number 0)
    while(number LESS count)
      list(APPEND joined ${folder}/${kind}_${number}.cc)
      math(EXPR number "${number} + 1")
    endwhile()
  endforeach()
  add_custom_command(OUTPUT ${joined} DEPENDS ${sources} ${tool} COMMAND ${write} ${counts} -- ${sources}
                     COMMENT "Joining sources of ${name}" VERBATIM)
  # A target without libraries: for a library's own command Ninja would build all libraries below first.
  add_custom_target(thinwire_joined_${name} DEPENDS ${joined})
  set_source_files_properties(${joined} PROPERTIES INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR})
  set(${variable} ${alone} ${joined} PARENT_SCOPE)
endfunction()

# thinwire_layer(<name> [BELOW <layers>...] [PRIVATE_LIBS <libs>...] [EXCLUDE <regex>...])
#
# Builds src/<name>/**.cc as the static library thinwire_<name>, linked to the layers below it, all
# *_test.cc in the folder as one program, <name>_tests, and every *_bench.cc as one benchmark. A new file
# needs no edit here, and a test cannot be left out by mistake. EXCLUDE drops the folder of an absent optional
# dependency, or the stub of a present one.
function(thinwire_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "BELOW;PRIVATE_LIBS;EXCLUDE")
  file(GLOB_RECURSE all CONFIGURE_DEPENDS src/${name}/*.cc)
  foreach(pattern IN LISTS arg_EXCLUDE)
    list(FILTER all EXCLUDE REGEX ${pattern})
  endforeach()
  set(sources ${all})
  set(tests ${all})
  set(benches ${all})
  list(FILTER sources EXCLUDE REGEX "_(test|bench|fuzz)\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")

  if(NOT sources)
    add_library(thinwire_${name} INTERFACE)
    set_property(GLOBAL APPEND PROPERTY THINWIRE_LAYERS thinwire_${name})
    return()
  endif()
  if(NOT name STREQUAL kernel)  # whose files include themselves, once for each SIMD target
    thinwire_joined(sources ${name} ${sources})
  endif()
  add_library(thinwire_${name} STATIC ${sources})
  set_target_properties(thinwire_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(
    thinwire_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_features(thinwire_${name} PUBLIC cxx_std_20)
  foreach(lower IN LISTS arg_BELOW)
    target_link_libraries(thinwire_${name} PUBLIC thinwire_${lower})
  endforeach()
  # The project's own flags are no part of what is installed: users have theirs.
  target_link_libraries(thinwire_${name} PRIVATE $<BUILD_INTERFACE:thinwire_flags>
                                                 ${arg_PRIVATE_LIBS})
  set_property(GLOBAL APPEND PROPERTY THINWIRE_LAYERS thinwire_${name})

  if(THINWIRE_TESTS AND tests)
    thinwire_tests(${name} SOURCES ${tests} LIBS thinwire_${name} ${arg_PRIVATE_LIBS})
  endif()
  if(THINWIRE_BENCH)
    foreach(source IN LISTS benches)
      cmake_path(GET source STEM bench)
      add_executable(${bench} EXCLUDE_FROM_ALL ${source})
      target_include_directories(${bench} PRIVATE src ${PROJECT_SOURCE_DIR})
      target_link_libraries(${bench} PRIVATE thinwire_${name} thinwire_flags ${arg_PRIVATE_LIBS}
                                             benchmark::benchmark_main)
      set_property(GLOBAL APPEND PROPERTY THINWIRE_BENCHES ${bench})
    endforeach()
  endif()
endfunction()

# thinwire_tests(<group> SOURCES <sources>... LIBS <libs>...): one GoogleTest program, <group>_tests, and for
# each source one ctest, <group>/<stem>, that runs the tests of this source alone.
function(thinwire_tests group)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  if(NOT TARGET thinwire_test_main)
    add_library(thinwire_test_main STATIC ${PROJECT_SOURCE_DIR}/tests/support/test_main.cc)
    target_link_libraries(thinwire_test_main PRIVATE thinwire_flags PUBLIC GTest::gmock)
  endif()
  thinwire_joined(sources ${group}_tests ${arg_SOURCES})
  add_executable(${group}_tests ${sources})
  target_include_directories(${group}_tests PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${group}_tests PRIVATE ${arg_LIBS} thinwire_flags thinwire_test_main)
  # Tests are compiled in a fifth less time than by -O2, and run as long: what they test has its own flags. Those of
  # libtorch share a precompiled header, which needs the same flags everywhere.
  if(NOT group MATCHES "^(train|torch)$")
    target_compile_options(${group}_tests PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  endif()
  foreach(source IN LISTS arg_SOURCES)
    cmake_path(GET source STEM test)
    add_test(NAME ${group}/${test} COMMAND ${group}_tests ${test})
    # For sanitizers beside other work: the longest takes 30 s alone, and ten times that with a sanitizer.
    set_tests_properties(${group}/${test} PROPERTIES TIMEOUT 900)
  endforeach()
endfunction()

# thinwire_keep_libraries(<program>): for a program that mpirun starts; keep_libraries.cc has the reason.
function(thinwire_keep_libraries program)
  if(THINWIRE_SANITIZE)
    target_sources(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/keep_libraries.cc)
  endif()
endfunction()
