# libtorch from the pinned wheel, the train layer on top of it, and the program.
#
# The wheel is found in .venv, where ./x puts it; set CMAKE_PREFIX_PATH for another libtorch.
file(GLOB torch_roots ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
list(APPEND CMAKE_PREFIX_PATH ${torch_roots})
find_package(Torch REQUIRED)
find_package(ZLIB REQUIRED)
find_package(LibLZMA REQUIRED)
find_library(SNDFILE_LIBRARY sndfile REQUIRED)

thinwire_layer(train BELOW exchange PRIVATE_LIBS torch ZLIB::ZLIB LibLZMA::LibLZMA
                                                   ${SNDFILE_LIBRARY})
target_compile_options(thinwire_train PRIVATE -Wno-shadow)
# A file that includes libtorch takes about 20 s; the precompiled header makes that 3.
target_precompile_headers(thinwire_train PRIVATE <torch/torch.h>)

add_subdirectory(cli)
