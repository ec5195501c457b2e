// The FOCUS rows against the column rules of the specification, version 1.0, written down here from
// github.com/FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec at the tag v1.0: "Content constraints" of
// each file in specification/columns, and the MUST clauses between columns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <regex>
#include <set>

#include "base/files.h"
#include "econ/scenario_reader.h"
#include "econ/scenario_report.h"

namespace tare::econ {
namespace {

enum class Type { kText, kDecimal, kTime, kCurrency, kOneOf };
struct ColumnRule {
  const char* name;
  bool mandatory;
  bool nulls;
  Type type;
  std::vector<std::string> values;
};

const std::vector<ColumnRule>& Rules() {
  static const std::vector<ColumnRule> rules = {
      {"AvailabilityZone", false, true, Type::kText, {}},
      {"BilledCost", true, false, Type::kDecimal, {}},
      {"BillingAccountId", true, false, Type::kText, {}},
      {"BillingAccountName", true, true, Type::kText, {}},
      {"BillingCurrency", true, false, Type::kCurrency, {}},
      {"BillingPeriodEnd", true, false, Type::kTime, {}},
      {"BillingPeriodStart", true, false, Type::kTime, {}},
      {"ChargeCategory",
       true,
       false,
       Type::kOneOf,
       {"Usage", "Purchase", "Tax", "Credit", "Adjustment"}},
      {"ChargeClass", true, true, Type::kOneOf, {"Correction"}},
      {"ChargeDescription", true, true, Type::kText, {}},
      {"ChargeFrequency", false, false, Type::kOneOf, {"One-Time", "Recurring", "Usage-Based"}},
      {"ChargePeriodEnd", true, false, Type::kTime, {}},
      {"ChargePeriodStart", true, false, Type::kTime, {}},
      {"CommitmentDiscountCategory", false, true, Type::kOneOf, {"Spend", "Usage"}},
      {"CommitmentDiscountId", false, true, Type::kText, {}},
      {"CommitmentDiscountName", false, true, Type::kText, {}},
      {"CommitmentDiscountStatus", false, true, Type::kOneOf, {"Used", "Unused"}},
      {"CommitmentDiscountType", false, true, Type::kText, {}},
      {"ConsumedQuantity", false, true, Type::kDecimal, {}},
      {"ConsumedUnit", false, true, Type::kText, {}},
      {"ContractedCost", true, false, Type::kDecimal, {}},
      {"ContractedUnitPrice", false, true, Type::kDecimal, {}},
      {"EffectiveCost", true, false, Type::kDecimal, {}},
      {"InvoiceIssuerName", true, false, Type::kText, {}},
      {"ListCost", true, false, Type::kDecimal, {}},
      {"ListUnitPrice", false, true, Type::kDecimal, {}},
      {"PricingCategory", false, true, Type::kOneOf, {"Standard", "Dynamic", "Committed", "Other"}},
      {"PricingQuantity", true, true, Type::kDecimal, {}},
      {"PricingUnit", true, true, Type::kText, {}},
      {"ProviderName", true, false, Type::kText, {}},
      {"PublisherName", true, false, Type::kText, {}},
      {"RegionId", false, true, Type::kText, {}},
      {"RegionName", false, true, Type::kText, {}},
      {"ResourceId", false, true, Type::kText, {}},
      {"ResourceName", false, true, Type::kText, {}},
      {"ResourceType", false, true, Type::kText, {}},
      {"ServiceCategory",
       true,
       false,
       Type::kOneOf,
       {"AI and Machine Learning", "Analytics", "Business Applications", "Compute", "Databases",
        "Developer Tools", "Multicloud", "Identity", "Integration", "Internet of Things",
        "Management and Governance", "Media", "Migration", "Mobile", "Networking", "Security",
        "Storage", "Web", "Other"}},
      {"ServiceName", true, false, Type::kText, {}},
      {"SkuId", false, true, Type::kText, {}},
      {"SkuPriceId", false, true, Type::kText, {}},
      {"SubAccountId", false, true, Type::kText, {}},
      {"SubAccountName", false, true, Type::kText, {}},
      {"Tags", false, true, Type::kText, {}},
  };
  return rules;
}

using Row = std::map<std::string, std::string>;

// RFC 4180, read independently of the writer.
std::vector<std::vector<std::string>> ReadCells(const std::string& csv) {
  std::vector<std::vector<std::string>> lines(1);
  std::string cell;
  bool quoted = false;
  for (std::size_t i = 0; i < csv.size(); ++i) {
    const char c = csv[i];
    if (quoted) {
      if (c == '"' && i + 1 < csv.size() && csv[i + 1] == '"') {
        cell += csv[++i];
      } else if (c == '"') {
        quoted = false;
      } else {
        cell += c;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',' || c == '\r') {
      lines.back().push_back(std::exchange(cell, ""));
    } else if (c == '\n') {
      lines.emplace_back();
    } else {
      cell += c;
    }
  }
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

std::vector<Row> Rows(const std::string& csv) {
  const auto lines = ReadCells(csv);
  std::vector<Row> rows;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].size(), lines[0].size()) << "line " << i;
    Row& row = rows.emplace_back();
    for (std::size_t column = 0; column < lines[0].size() && column < lines[i].size(); ++column) {
      row[lines[0][column]] = lines[i][column];
    }
  }
  return rows;
}

void ExpectValue(const ColumnRule& rule, const std::string& value) {
  static const std::regex decimal("-?[0-9]+(\\.[0-9]+)?(E-?[0-9]+)?");
  static const std::regex time("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z");
  static const std::regex currency("[A-Z]{3}");
  if (value.empty()) {
    EXPECT_TRUE(rule.nulls) << rule.name << " must not be null";
    return;
  }
  switch (rule.type) {
    case Type::kText:
      break;
    case Type::kDecimal:
      EXPECT_TRUE(std::regex_match(value, decimal)) << rule.name << " " << value;
      break;
    case Type::kTime:
      EXPECT_TRUE(std::regex_match(value, time)) << rule.name << " " << value;
      break;
    case Type::kCurrency:
      EXPECT_TRUE(std::regex_match(value, currency)) << rule.name << " " << value;
      break;
    case Type::kOneOf:
      EXPECT_THAT(rule.values, testing::Contains(value)) << rule.name;
      break;
  }
}

double Number(const Row& row, const char* column) { return std::stod(row.at(column)); }

// The clauses that tie columns together.
void ExpectConsistent(const Row& row) {
  const std::string& category = row.at("ChargeCategory");
  if (category == "Purchase") {
    EXPECT_NE(row.at("ChargeFrequency"), "Usage-Based");
    EXPECT_TRUE(row.at("ConsumedQuantity").empty());
  }
  if (category == "Usage") {
    EXPECT_FALSE(row.at("ConsumedQuantity").empty());
  }
  EXPECT_EQ(row.at("ConsumedQuantity").empty(), row.at("ConsumedUnit").empty());
  if (category == "Usage" || category == "Purchase") {
    for (const char* column : {"PricingQuantity", "PricingUnit", "PricingCategory", "SkuId",
                               "SkuPriceId", "ListUnitPrice", "ContractedUnitPrice"}) {
      EXPECT_FALSE(row.at(column).empty()) << column;
    }
  }
  const double quantity = Number(row, "PricingQuantity");
  EXPECT_NEAR(Number(row, "ListUnitPrice") * quantity, Number(row, "ListCost"), 1e-6);
  EXPECT_NEAR(Number(row, "ContractedUnitPrice") * quantity, Number(row, "ContractedCost"), 1e-6);
  EXPECT_LT(row.at("ChargePeriodStart"), row.at("ChargePeriodEnd"));
  EXPECT_LE(row.at("BillingPeriodStart"), row.at("ChargePeriodStart"));
  EXPECT_LE(row.at("ChargePeriodEnd"), row.at("BillingPeriodEnd"));
}

Scenario Example() {
  auto document = config::Document::Load(std::filesystem::path(TARE_SOURCE_DIR) /
                                         "examples/scenarios/self_built_or_rented.yaml");
  return *ReadScenario(*document, *Catalog::BuiltIn());
}

TEST(Focus, RowsFollowTheColumnRules) {
  const Scenario scenario = Example();
  const std::string csv = ScenarioFocusCsv(scenario, Answer(scenario, 0, 1, nullptr), 2027);
  const std::vector<std::string> header = ReadCells(csv).front();
  ASSERT_EQ(header.size(), Rules().size());
  const std::vector<Row> rows = Rows(csv);
  ASSERT_GT(rows.size(), 100u);
  for (std::size_t i = 0; i < Rules().size(); ++i) {
    EXPECT_EQ(header[i], Rules()[i].name);
    for (const Row& row : rows) ExpectValue(Rules()[i], row.at(Rules()[i].name));
  }
  for (const Row& row : rows) ExpectConsistent(row);
}

// Billed adds up to what is paid, effective to what is used; a purchase covers later charges.
TEST(Focus, BilledIsPaidAndEffectiveIsUsed) {
  const Scenario scenario = Example();
  const ScenarioAnswer answer = Answer(scenario, 0, 1, nullptr);
  std::map<std::string, double> billed, effective;
  for (const Row& row : Rows(ScenarioFocusCsv(scenario, answer, 2027))) {
    billed[row.at("BillingAccountId")] += Number(row, "BilledCost");
    effective[row.at("BillingAccountId")] += Number(row, "EffectiveCost");
    if (row.at("SkuId") == "hardware-purchase") {
      EXPECT_EQ(Number(row, "EffectiveCost"), 0);
    }
    if (row.at("SkuId") == "hardware-depreciation") {
      EXPECT_EQ(Number(row, "BilledCost"), 0);
    }
  }
  for (std::size_t i = 0; i < scenario.options.size(); ++i) {
    double paid = 0, used = 0;
    for (const YearCosts& year : answer.options[i].years) {
      paid += year.running() + year.purchase;
      used += year.running() + year.depreciation;
    }
    EXPECT_NEAR(billed[scenario.options[i].name], paid, 0.01);
    EXPECT_NEAR(effective[scenario.options[i].name], used, 0.01);
  }
}

// The FinOps Foundation's own validator (PyPI focus-validator 1.0.0), when TARE_FOCUS_VALIDATOR
// names its program. Its rule set for 1.0 names five columns as older versions did (InvoiceIssuer,
// Provider, Publisher, ResourceID, ChargeType), and it reads its currency list from a path that is
// there only inside its own package; those six checks say nothing about the rows.
TEST(Focus, TheFoundationsValidatorFindsNothingElse) {
  const char* validator = std::getenv("TARE_FOCUS_VALIDATOR");
  if (validator == nullptr) {
    GTEST_SKIP() << "TARE_FOCUS_VALIDATOR names no program (pip install focus-validator)";
  }
  const Scenario scenario = Example();
  const std::filesystem::path folder = testing::TempDir();
  const std::filesystem::path file = folder / "tare_focus_test.csv";
  const std::filesystem::path report = folder / "tare_focus_test.report";
  ASSERT_TRUE(
      WriteFileAtomic(file, ScenarioFocusCsv(scenario, Answer(scenario, 0, 1, nullptr), 2027))
          .has_value());
  const std::string command =
      fmt::format("'{}' --validate-version 1.0 --data-file '{}' > '{}' 2>&1", validator,
                  file.string(), report.string());
  // Its exit status is not zero when any check fails.
  if (std::system(command.c_str()) < 0) FAIL() << "cannot start " << validator;
  const std::string text = *ReadFile(report);
  EXPECT_THAT(text, testing::HasSubstr("Validation ")) << text;
  const std::set<std::string> about_the_validator = {"BillingCurrency_IsCurrencyCode",
                                                     "InvoiceIssuer_Required",
                                                     "Provider_Required",
                                                     "Publisher_Required",
                                                     "ResourceID_Required",
                                                     "SkuPriceId_Nullable"};
  const std::regex failed("([A-Za-z_]+) failed:");
  for (std::sregex_iterator it(text.begin(), text.end(), failed), end; it != end; ++it) {
    EXPECT_EQ(about_the_validator.count((*it)[1]), 1u) << (*it)[1];
  }
}

}  // namespace
}  // namespace tare::econ
