# THINWIRE_PYTHON_ENVIRONMENT: with what environment tests start Python on the package that was built.
#
# AddressSanitizer must be there before the interpreter allocates, so it is loaded first. What the interpreter never
# frees is not looked for. ThreadSanitizer cannot be loaded into an interpreter that was not built with it, so these
# tests are left out then: THINWIRE_PYTHON_TESTS is off.
set(THINWIRE_PYTHON_ENVIRONMENT PYTHONPATH=${PROJECT_BINARY_DIR}/python)
set(THINWIRE_PYTHON_TESTS ${THINWIRE_TESTS})
if(THINWIRE_SANITIZE MATCHES "thread")
  set(THINWIRE_PYTHON_TESTS OFF)
elseif(THINWIRE_SANITIZE)
  set(preloaded "")
  foreach(library asan ubsan stdc++)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=lib${library}.so
                    OUTPUT_VARIABLE file OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    list(APPEND preloaded ${file})
  endforeach()
  list(JOIN preloaded ":" preloaded)
  list(APPEND THINWIRE_PYTHON_ENVIRONMENT LD_PRELOAD=${preloaded}
       ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0)
endif()
