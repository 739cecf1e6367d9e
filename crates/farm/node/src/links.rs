//! What the engine asks of the member.

use plinth_farm_engine::Links;
use plinth_farm_fabric::{Fabric, Machine};
use plinth_farm_member::{Member, Register};
use plinth_runtime::sync::Watch;
use std::future::Future;
use std::pin::Pin;
use std::rc::Weak;

pub struct ToMember<F: Fabric + 'static, R: Register + 'static> {
    pub member: Weak<Member<F, R>>,
    pub lost: Watch<Vec<u16>>,
    pub failed: Watch<Option<String>>,
}

impl<F: Fabric + 'static, R: Register + 'static> Links for ToMember<F, R> {
    fn reopen(&self, machine: Machine) -> Pin<Box<dyn Future<Output = ()>>> {
        let member = self.member.clone();
        Box::pin(async move {
            if let Some(member) = member.upgrade() {
                member.open(machine).await;
            }
        })
    }

    fn trouble(&self, number: u64) {
        if let Some(member) = self.member.upgrade() {
            member.want_anew(number);
        }
    }

    fn whole(&self, number: u64, region: u16) {
        if let Some(member) = self.member.upgrade() {
            member.report_whole(number, &[region]);
        }
    }

    fn disk_failed(&self, why: String) {
        self.failed.set(Some(why));
    }

    fn lost(&self, regions: &[u16]) {
        self.lost.set(regions.to_vec());
    }
}
