# Writes OUTPUT, a source file with every file under CATALOG as a raw string (econ/catalog.h).
file(GLOB paths RELATIVE "${CATALOG}" "${CATALOG}/models/*.yaml" "${CATALOG}/hardware/*.yaml")
list(SORT paths)
set(entries "")
foreach(path ${paths})
  file(READ "${CATALOG}/${path}" text)
  string(APPEND entries "      {\"${path}\", R\"yaml(${text})yaml\"},\n")
endforeach()
file(WRITE "${OUTPUT}" "#include \"econ/catalog.h\"

namespace tare::econ {

const std::vector<EmbeddedFile>& EmbeddedCatalog() {
  static const std::vector<EmbeddedFile> files = {
${entries}  };
  return files;
}

}  // namespace tare::econ
")
