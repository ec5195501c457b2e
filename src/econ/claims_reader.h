// Claims files: YAML -> Claim values. docs/CLAIMS.md documents the format; examples/claims has one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/result.h"
#include "econ/catalog.h"
#include "econ/claim.h"

namespace tare::econ {

struct ClaimsFile {
  std::string title;
  std::string source;
  std::vector<Claim> claims;
};

// Mistakes in the file (unknown kinds, keys, units, models) are errors; missing inputs are not:
// they make a claim unsupported.
Result<ClaimsFile> ReadClaims(const config::Document& document, const Catalog& catalog);

}  // namespace tare::econ
