// A scenario's costs as rows of the FinOps Open Cost and Usage Specification, version 1.0
// (focus.finops.org/focus-specification/v1-0; specification/columns of the tag v1.0): all its
// columns, in the order of their names; what a scenario does not know is null.
//
// BilledCost is what is paid in the month and EffectiveCost what the month used: bought hardware is
// a Purchase billed in full with an effective cost of zero, and its depreciation is Usage billed at
// zero. The other costs are paid as they are used.
#include <fmt/format.h>

#include "econ/csv.h"
#include "econ/scenario_report.h"

namespace tare::econ {
namespace {

constexpr int kMonths = 12;

constexpr const char* kHeader =
    "AvailabilityZone,BilledCost,BillingAccountId,BillingAccountName,BillingCurrency,"
    "BillingPeriodEnd,BillingPeriodStart,ChargeCategory,ChargeClass,ChargeDescription,"
    "ChargeFrequency,ChargePeriodEnd,ChargePeriodStart,CommitmentDiscountCategory,"
    "CommitmentDiscountId,CommitmentDiscountName,CommitmentDiscountStatus,CommitmentDiscountType,"
    "ConsumedQuantity,ConsumedUnit,ContractedCost,ContractedUnitPrice,EffectiveCost,"
    "InvoiceIssuerName,ListCost,ListUnitPrice,PricingCategory,PricingQuantity,PricingUnit,"
    "ProviderName,PublisherName,RegionId,RegionName,ResourceId,ResourceName,ResourceType,"
    "ServiceCategory,ServiceName,SkuId,SkuPriceId,SubAccountId,SubAccountName,Tags\r\n";

struct Charge {
  const char* sku;
  const char* description;
  const char* category;   // ChargeCategory
  const char* frequency;  // ChargeFrequency
  const char* service;    // ServiceName
  const char* service_category;
};
constexpr Charge kPurchase = {"hardware-purchase", "hardware bought", "Purchase",
                              "One-Time",          "Hardware",        "Compute"};
constexpr Charge kDepreciation = {"hardware-depreciation",
                                  "hardware depreciation",
                                  "Usage",
                                  "Usage-Based",
                                  "Hardware",
                                  "Compute"};

struct MonthlyCharge {
  Charge charge;
  double YearCosts::*member;
};
constexpr MonthlyCharge kMonthly[] = {
    {{"device-rent", "device rent", "Usage", "Usage-Based", "Accelerator rent", "Compute"},
     &YearCosts::rent},
    {{"energy", "energy", "Usage", "Usage-Based", "Energy", "Other"}, &YearCosts::energy},
    {{"licence", "licence", "Purchase", "Recurring", "Licence", "AI and Machine Learning"},
     &YearCosts::licence},
    {{"staff", "staff", "Usage", "Recurring", "Staff", "Other"}, &YearCosts::staff},
    {{"other", "audits, network and other", "Usage", "Recurring", "Other", "Other"},
     &YearCosts::other},
    {{"tokens", "tokens", "Usage", "Usage-Based", "Tokens", "AI and Machine Learning"},
     &YearCosts::tokens},
};

std::string MonthStart(int year, int month) {
  return fmt::format("{:04d}-{:02d}-01T00:00:00Z", year + (month - 1) / kMonths,
                     (month - 1) % kMonths + 1);
}

class FocusWriter {
 public:
  FocusWriter(const Scenario& scenario, int first_year)
      : currency_(scenario.currency), first_year_(first_year) {}

  // `month` counts from 1 over the whole horizon. One unit of the charge has the cost as its price.
  void Add(const std::string& option, int month, const Charge& charge, double billed,
           double effective) {
    const double listed = billed != 0 ? billed : effective;
    if (listed == 0) return;
    const bool usage = charge.category == std::string_view("Usage");
    const std::string account = CsvCell(option);
    csv_ += fmt::format(
        ",{billed:.6f},{account},{account},{currency},{end},{start},{category},,{what},{frequency},"
        "{end},{start},,,,,,{consumed},{consumed_unit},{listed:.6f},{listed:.6f},{effective:.6f},"
        "{account},{listed:.6f},{listed:.6f},Standard,1.0,Months,{account},{account},,,,,,{group},"
        "{service},{sku},{sku},,,\r\n",
        fmt::arg("billed", billed), fmt::arg("account", account), fmt::arg("currency", currency_),
        fmt::arg("start", MonthStart(first_year_, month)),
        fmt::arg("end", MonthStart(first_year_, month + 1)), fmt::arg("category", charge.category),
        fmt::arg("what", CsvCell(charge.description)), fmt::arg("frequency", charge.frequency),
        fmt::arg("consumed", usage ? "1.0" : ""), fmt::arg("consumed_unit", usage ? "Months" : ""),
        fmt::arg("listed", listed), fmt::arg("effective", effective),
        fmt::arg("group", charge.service_category), fmt::arg("service", charge.service),
        fmt::arg("sku", charge.sku));
  }
  std::string Take() { return std::move(csv_); }

 private:
  std::string currency_;
  int first_year_;
  std::string csv_ = kHeader;
};

}  // namespace

std::string ScenarioFocusCsv(const Scenario& scenario, const ScenarioAnswer& answer,
                             int first_year) {
  FocusWriter writer(scenario, first_year);
  for (std::size_t i = 0; i < answer.options.size(); ++i) {
    const std::string& option = scenario.options[i].name;
    int month = 0;
    for (const YearCosts& year : answer.options[i].years) {
      writer.Add(option, month + 1, kPurchase, year.purchase, 0);
      for (int end = month + kMonths; month < end;) {
        ++month;
        writer.Add(option, month, kDepreciation, 0, year.depreciation / kMonths);
        for (const MonthlyCharge& monthly : kMonthly) {
          const double cost = year.*monthly.member / kMonths;
          writer.Add(option, month, monthly.charge, cost, cost);
        }
      }
    }
  }
  return writer.Take();
}

}  // namespace tare::econ
