//! `\xff\xff/management/`: what operators change, as FoundationDB's tools do.

use super::{MODULES, Module, distribution, tenants};

#[linkme::distributed_slice(MODULES)]
static MANAGEMENT: Module = Module {
    begin: b"\xff\xff/management/",
    end: b"\xff\xff/management0",
    rows: |transaction, asked| {
        Box::pin(async move {
            let mut rows = distribution::rows(transaction, &asked.within).await?;
            rows.extend(tenants::rows(transaction, &asked.within).await?);
            Ok(rows)
        })
    },
    writable: &[
        distribution::MODE_WRITABLE,
        distribution::MAINTENANCE_WRITABLE,
        tenants::MAP_WRITABLE,
        tenants::RENAME_WRITABLE,
    ],
};
