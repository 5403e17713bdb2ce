# cmake -DFOLDER=src/device/texts -DOUT=kernel_table.cc -P embed_texts.cmake
#
# Writes the kernel texts of a folder as string literals of C++.
file(GLOB texts "${FOLDER}/*.cu")
list(SORT texts)
set(table "")
set(rows "")
foreach(text IN LISTS texts)
  cmake_path(GET text STEM name)
  file(READ "${text}" source)
  if(name STREQUAL "cuda_prelude")
    string(APPEND table "extern const std::string_view kCudaPrelude = R\"text(${source})text\";\n")
  elseif(name STREQUAL "common")
    string(APPEND table "extern const std::string_view kCommonText = R\"text(${source})text\";\n")
  else()
    string(APPEND rows "    {\"${name}\", R\"text(${source})text\"},\n")
  endif()
endforeach()
file(WRITE "${OUT}" "// Written by cmake/embed_texts.cmake.
#include \"device/kernel_texts.h\"

namespace thinwire::device {

extern const std::string_view kCudaPrelude, kCommonText;
${table}
std::span<const KernelText> kernel_texts() noexcept {
  static constexpr KernelText kTexts[] = {
${rows}  };
  return kTexts;
}

}  // namespace thinwire::device
")
