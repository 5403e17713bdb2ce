# Makes the stub of thinwire._core anew and compares it with the one on file.
# usage: cmake -DPYTHON=... -DSTUB=... -DMADE=... -P stub.cmake
execute_process(COMMAND ${PYTHON} -m nanobind.stubgen -q -m thinwire._core -o ${MADE}
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files ${MADE} ${STUB} RESULT_VARIABLE differs)
if(differs)
  message(FATAL_ERROR "the stub is out of date; cp ${MADE} ${STUB}")
endif()
