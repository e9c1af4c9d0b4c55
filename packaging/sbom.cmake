# Writes the software bill of materials (SPDX 2.3, JSON) of the table in docs/dependencies.md:
#   cmake -DSOURCE=… -DVERSION=0.1.0 -DOUTPUT=stoker.spdx.json -P packaging/sbom.cmake
# Its date is SOURCE_DATE_EPOCH, if that is set.
cmake_minimum_required(VERSION 3.25)

function(spdx_license out text)
  string(REPLACE ", " " AND " text "${text}")
  string(REGEX REPLACE "BSD-([23])" "BSD-\\1-Clause" text "${text}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

# add_package(ID NAME VERSION LICENSE): appends to the variables packages and relations.
function(add_package id name version license)
  string(APPEND packages ",
    {\"SPDXID\": \"SPDXRef-${id}\", \"name\": \"${name}\", \"versionInfo\": \"${version}\",
     \"licenseConcluded\": \"${license}\", \"licenseDeclared\": \"${license}\", \"copyrightText\": \"NOASSERTION\",
     \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false}")
  string(APPEND relations ",
    {\"spdxElementId\": \"SPDXRef-stoker\", \"relationshipType\": \"DEPENDS_ON\", \"relatedSpdxElement\": \"SPDXRef-${id}\"}")
  set(packages "${packages}" PARENT_SCOPE)
  set(relations "${relations}" PARENT_SCOPE)
endfunction()

set(packages "")
set(relations "")
set(count 0)
file(STRINGS "${SOURCE}/docs/dependencies.md" rows REGEX "^\\| [^|]+ \\| [0-9]")
foreach(row IN LISTS rows)
  if(NOT row MATCHES "^\\| ([^|]+) \\| ([0-9.]+)[^|]* \\| ([^|]+) \\|")
    message(FATAL_ERROR "docs/dependencies.md: not a row of library, version and license: ${row}")
  endif()
  set(name "${CMAKE_MATCH_1}")
  set(version "${CMAKE_MATCH_2}")
  spdx_license(license "${CMAKE_MATCH_3}")
  string(REGEX REPLACE "[^A-Za-z0-9.-]+" "-" id "${name}")
  string(REGEX REPLACE "-$" "" id "${id}")
  add_package("${id}" "${name}" "${version}" "${license}")
  math(EXPR count "${count} + 1")
endforeach()
if(count LESS 10)
  message(FATAL_ERROR "docs/dependencies.md: only ${count} libraries found in its table")
endif()

string(TIMESTAMP created "%Y-%m-%dT%H:%M:%SZ" UTC)
string(TIMESTAMP seconds "%s" UTC)
file(WRITE "${OUTPUT}" "{
  \"spdxVersion\": \"SPDX-2.3\",
  \"dataLicense\": \"CC0-1.0\",
  \"SPDXID\": \"SPDXRef-DOCUMENT\",
  \"name\": \"stoker-${VERSION}\",
  \"documentNamespace\": \"https://spdx.org/spdxdocs/stoker-${VERSION}-${seconds}\",
  \"creationInfo\": {\"created\": \"${created}\", \"creators\": [\"Tool: packaging/sbom.cmake\"]},
  \"packages\": [
    {\"SPDXID\": \"SPDXRef-stoker\", \"name\": \"stoker\", \"versionInfo\": \"${VERSION}\",
     \"licenseConcluded\": \"Apache-2.0\", \"licenseDeclared\": \"Apache-2.0\", \"copyrightText\": \"NOASSERTION\",
     \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false}${packages}
  ],
  \"relationships\": [
    {\"spdxElementId\": \"SPDXRef-DOCUMENT\", \"relationshipType\": \"DESCRIBES\", \"relatedSpdxElement\": \"SPDXRef-stoker\"}${relations}
  ]
}
")
