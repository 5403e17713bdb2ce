# libtorch exports the std::filesystem of the compiler that built it, parts of it from each of two libraries. With torch 2.11 for
# CUDA 13, a program that takes them crashes in remove_all. libstdc++ comes first, so that all of it is taken from there.
function(thinwire_libstdcxx_first target)
  target_link_options(${target} INTERFACE LINKER:--push-state,--no-as-needed -lstdc++ LINKER:--pop-state)
endfunction()
