# The list of the parts that the programs are made of, in SPDX 2.3 (ISO/IEC 5962): this project and the libraries found by
# pkg-config, with their versions. `sbom` writes it at configure time.
string(TIMESTAMP sbom_created "%Y-%m-%dT%H:%M:%SZ" UTC) # SOURCE_DATE_EPOCH's where that is set

set(SBOM_UV libuv MIT)
set(SBOM_URCU liburcu LGPL-2.1-or-later)
set(SBOM_XXHASH xxHash BSD-2-Clause)
set(SBOM_NETTLE nettle "LGPL-3.0-or-later OR GPL-2.0-or-later")
set(SBOM_OPENSSL OpenSSL Apache-2.0)
set(SBOM_LZ4 lz4 BSD-2-Clause)
set(SBOM_SNAPPY snappy BSD-3-Clause)
set(SBOM_ZLIB zlib Zlib)
set(SBOM_ZSTD zstd "BSD-3-Clause OR GPL-2.0-only")

function(sbom file) # and the prefixes of pkg_check_modules() of the libraries
  set(packages "")
  set(relations "")
  foreach(library ${ARGN})
    if(NOT DEFINED SBOM_${library} OR NOT ${library}_VERSION)
      message(FATAL_ERROR "cmake/sbom.cmake does not know the library ${library}")
    endif()
    list(GET SBOM_${library} 0 name)
    list(GET SBOM_${library} 1 licence)
    string(APPEND packages ",
    { \"SPDXID\": \"SPDXRef-${name}\", \"name\": \"${name}\", \"versionInfo\": \"${${library}_VERSION}\",
      \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false, \"licenseConcluded\": \"NOASSERTION\",
      \"licenseDeclared\": \"${licence}\", \"copyrightText\": \"NOASSERTION\" }")
    string(APPEND relations ",
    { \"spdxElementId\": \"SPDXRef-bloomery\", \"relationshipType\": \"DYNAMIC_LINK\", \"relatedSpdxElement\": \"SPDXRef-${name}\" }")
  endforeach()
  string(UUID id NAMESPACE 6ba7b811-9dad-11d1-80b4-00c04fd430c8 NAME "bloomery ${PROJECT_VERSION} ${packages}" TYPE SHA1)
  file(WRITE ${file} "{
  \"spdxVersion\": \"SPDX-2.3\",
  \"dataLicense\": \"CC0-1.0\",
  \"SPDXID\": \"SPDXRef-DOCUMENT\",
  \"name\": \"bloomery-${PROJECT_VERSION}\",
  \"documentNamespace\": \"urn:uuid:${id}\",
  \"creationInfo\": { \"created\": \"${sbom_created}\", \"creators\": [ \"Tool: CMake-${CMAKE_VERSION}\" ] },
  \"packages\": [
    { \"SPDXID\": \"SPDXRef-bloomery\", \"name\": \"bloomery\", \"versionInfo\": \"${PROJECT_VERSION}\",
      \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false, \"licenseConcluded\": \"BSD-3-Clause\",
      \"licenseDeclared\": \"BSD-3-Clause\", \"copyrightText\": \"NOASSERTION\" }${packages}
  ],
  \"relationships\": [
    { \"spdxElementId\": \"SPDXRef-DOCUMENT\", \"relationshipType\": \"DESCRIBES\", \"relatedSpdxElement\": \"SPDXRef-bloomery\" }${relations}
  ]
}
")
endfunction()
