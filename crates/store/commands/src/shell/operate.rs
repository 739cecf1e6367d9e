//! Statements of an operator that change the database: configuration, exclusion, the lock.

use super::session::Session;
use super::settings::Setting;
use super::statement::Management;
use crate::registered::{registered, registration_limit};
use plinth_control::consistency::{Compared, Comparison};
use plinth_control::exclusion::Target;
use plinth_control::management::ConfigChange;
use plinth_control::{coordinators, distribution, exclusion, management};
use plinth_coordination::ClusterFile;
use plinth_core::{Error, Uid};
use plinth_measure::grouped;
use plinth_protocol::control::{
    ChangeCoordinators, ClusterInfo, GetClusterInfo, RegisterWorker, ServersChanged,
};
use plinth_rpc::Place;
use plinth_runtime::{Duration, net};
use plinth_terminal::shell::answer::Answer;
use plinth_terminal::{Outcome, progress};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Interval between checks whether excluded processes still hold data.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// A resolver that does not answer within this time is not waited for.
const RESOLVE_LIMIT: Duration = Duration::from_secs(2);

fn said(text: impl Into<String>) -> Outcome<Answer> {
    Ok(Answer::Text(text.into()))
}

impl Session {
    pub(super) async fn manage(&self, statement: Management) -> Outcome<Answer> {
        let excluded = match &statement {
            Management::Exclude {
                targets,
                wait: true,
                ..
            } => Some(targets.clone()),
            _ => None,
        };
        let changed = plinth_runtime::timeout(self.connection.timeout, self.change(statement));
        let Some(answer) = changed.await else {
            return Err(self.explain_silence().await);
        };
        let answer = answer?;
        match excluded {
            Some(targets) => {
                let leaving = self.let_others_coordinate(&targets);
                let left = plinth_runtime::timeout(self.connection.timeout, leaving).await;
                // If it took too long, the wait ends with a warning.
                let moved = left.transpose()?.flatten();
                self.wait_until_unneeded(&targets, moved).await
            }
            None => Ok(answer),
        }
    }

    /// The coordinators among excluded processes. A new controller may not know all workers yet, so a coordinator that
    /// is not among them is looked for at the address of its name.
    async fn coordinators_among(
        &self,
        excluded: &[Target],
        workers: &[RegisterWorker],
    ) -> Vec<Place> {
        let coordinators = self.connection.coordinators.file().coordinators;
        let mut among = exclusion::among(excluded, &coordinators, workers);
        for place in coordinators {
            let Place::Named(host, port) = &place else {
                continue;
            };
            if workers.iter().any(|worker| worker.is_at(&place)) {
                continue;
            }
            let found = plinth_runtime::timeout(RESOLVE_LIMIT, net::resolve(host, *port)).await;
            let found = found.and_then(Result::ok).unwrap_or_default();
            if found
                .iter()
                .any(|at| excluded.iter().any(|target| target.names(at)))
            {
                among.push(place);
            }
        }
        among
    }

    /// Warning that excluded coordinators stay coordinators; empty if no excluded process is one.
    async fn warn_of_coordinators(
        &self,
        excluded: &[Target],
        workers: &[RegisterWorker],
    ) -> String {
        let among = self.coordinators_among(excluded, workers).await;
        let among: Vec<String> = among.iter().map(Place::to_string).collect();
        match among.is_empty() {
            true => String::new(),
            false => format!(
                "\nWARNING: a coordinator is {}, and stays one: before it is stopped, \
                `coordinators auto' lets others be that",
                among.join(", ")
            ),
        }
    }

    /// The same after [`Session::let_others_coordinate`] has found nobody: what is left if it is stopped all the same.
    async fn warn_of_needed_coordinators(
        &self,
        excluded: &[Target],
        workers: &[RegisterWorker],
    ) -> String {
        let among = self.coordinators_among(excluded, workers).await;
        let all = self.connection.coordinators.file().coordinators.len();
        let left = all - among.len();
        let loss = match may_fail(all).checked_sub(among.len()) {
            None => "the database stands still".into(),
            Some(0) => format!("{left} of {all} are left, and no other one may fail"),
            Some(more) => format!("{left} of {all} are left, and {more} more may fail"),
        };
        let among: Vec<String> = among.iter().map(Place::to_string).collect();
        match among.is_empty() {
            true => String::new(),
            false => format!(
                "\nWARNING: a coordinator is {}, and stays one: no other process can take its place. Start one in \
                 another fault domain, and `coordinators auto' lets it; if this one is stopped before, {loss}",
                among.join(", ")
            ),
        }
    }

    /// Lets other processes be coordinators in place of excluded ones, if as many as before can. Says which; `None` if
    /// nothing had to change, or nothing could.
    async fn let_others_coordinate(&self, excluded: &[Target]) -> Outcome<Option<String>> {
        let workers = registered(&self.connection, &[]).await?.workers;
        let now = self.connection.coordinators.file().coordinators;
        let among = self.coordinators_among(excluded, &workers).await;
        if among.is_empty() {
            return Ok(None);
        }
        let best = self.best_coordinators(&now).await?;
        let is_excluded = !exclusion::among(excluded, &best, &workers).is_empty();
        if best.len() < now.len() || is_excluded {
            return Ok(None);
        }
        let wanted = best.into_iter().map(|place| (place, false)).collect();
        // A refusal changes nothing, and the warning at the end says what is to do.
        Ok(self.change_coordinators(Some(wanted), false).await.ok())
    }

    /// The coordinators that suit best. A new controller knows only some processes at first, so as many as the cluster
    /// should have are waited for.
    async fn best_coordinators(&self, now: &[Place]) -> Outcome<Vec<Place>> {
        let configured = management::configured(&self.connection.database).await?;
        let (config, excluded) = (configured.config, configured.excluded);
        let began = plinth_runtime::now();
        let mut workers = registered(&self.connection, &[]).await?.workers;
        loop {
            workers.retain(|worker| !exclusion::is_excluded(worker, &excluded));
            let best = coordinators::choose(&workers, now, &config);
            let wanted = coordinators::wanted(&config).max(now.len());
            if best.len() >= wanted || began.elapsed() >= registration_limit(&self.connection) {
                return Ok(best);
            }
            plinth_runtime::sleep(LOOK_INTERVAL).await;
            workers = self.connection.workers().await?;
        }
    }

    /// Does `act` with the workers. If it is refused while a new controller does not know all of them yet, it is tried
    /// again for a while. Returns also the workers.
    async fn with_workers<T>(
        &self,
        act: impl AsyncFn(&[RegisterWorker]) -> Outcome<T>,
    ) -> Outcome<(T, Vec<RegisterWorker>)> {
        let began = plinth_runtime::now();
        let mut workers = registered(&self.connection, &[]).await?.workers;
        loop {
            let refusal = match act(&workers).await {
                Ok(done) => return Ok((done, workers)),
                Err(refusal) => refusal,
            };
            let database = &self.connection.database;
            // A process that holds nothing is in no list, so who lacks processes waits for some.
            let may_change = management::is_for_lack_of_processes(&refusal)
                || !management::unknown_servers(database, &workers)
                    .await?
                    .is_empty();
            if !may_change || began.elapsed() >= registration_limit(&self.connection) {
                return Err(refusal);
            }
            plinth_runtime::sleep(LOOK_INTERVAL).await;
            workers = self.connection.workers().await?;
        }
    }

    async fn change(&self, statement: Management) -> Outcome<Answer> {
        let database = &self.connection.database;
        let answer: Answer = match statement {
            Management::Configure { change, by, force } => {
                self.configure(change, by, force).await?
            }
            Management::Excluded => {
                list_excluded(&management::configured(database).await?.excluded)
            }
            Management::Exclude { targets, force, .. } => {
                let act = async |workers: &[RegisterWorker]| {
                    management::exclude(database, workers, &targets, force).await
                };
                let ((), workers) = self.with_workers(act).await?;
                let warning = self.warn_of_coordinators(&targets, &workers).await;
                format!("Excluded; their data is on its way to others{warning}").into()
            }
            Management::Include(targets) => {
                let mut before = management::configured(database).await?.excluded;
                management::include(database, &targets).await?;
                before.retain(|target| targets.is_empty() || targets.contains(target));
                included(&targets, &before)?.into()
            }
            Management::Lock => {
                let id = Uid(plinth_runtime::random::uid());
                management::lock(database, id).await?;
                let text = format!("Database locked\n`unlock {id}' unlocks it");
                Answer::WithId(text, id.to_string())
            }
            Management::Setting(setting) => {
                if let Setting::Class(address, _) = &setting {
                    registered(&self.connection, &[*address]).await?;
                }
                let act = async |workers: &[RegisterWorker]| {
                    setting.clone().apply(database, workers).await
                };
                self.with_workers(act).await?.0
            }
            Management::Distribute(distributing) => {
                let act = async |workers: &[RegisterWorker]| {
                    distributing.clone().apply(database, workers).await
                };
                self.with_workers(act).await?.0
            }
            Management::Throttle(throttling) => throttling.apply(database).await?,
            Management::Coordinators { wanted, force } => {
                self.change_coordinators(wanted, force).await?.into()
            }
            Management::Unlock(id) => match management::unlock(database, id).await? {
                true => "Database unlocked".into(),
                false => "The database is not locked; nothing has changed".into(),
            },
        };
        self.tell_controller().await;
        Ok(answer)
    }

    async fn configure(
        &self,
        change: ConfigChange,
        by: &'static str,
        force: bool,
    ) -> Outcome<Answer> {
        let database = &self.connection.database;
        let act = async |workers: &[RegisterWorker]| {
            let before = management::configured(database).await?.config;
            let loss = management::fewer_copies(&before, &change.apply(before));
            if let Some(loss) = loss.filter(|_| change.mode.is_some_and(|(copies, _)| copies == 1))
            {
                let is_wanted = force || !management::are_on_several_machines(workers);
                refuse_loss(&loss, by, is_wanted)?;
            }
            let still = management::stops_surviving(&before, &change.apply(before), workers);
            still.map_or(Ok(()), |still| refuse_loss(&still, by, force))?;
            let config = management::configure(database, workers, change).await?;
            Ok((config, management::fewer_copies(&before, &config)))
        };
        let ((config, copies), workers) = self.with_workers(act).await?;
        let logs = change
            .logs
            .and_then(|_| management::fewer_logs(&config, &workers));
        let still = change
            .mode
            .and_then(|_| management::stands_still_without_one(&config, &workers));
        let fewer = [copies, logs, still].into_iter().flatten();
        let fewer: String = fewer.map(|line| format!("; {line}")).collect();
        Ok(format!("Configuration changed{fewer}").into())
    }

    /// Repeats the request while the controller changes; repeating it does no harm.
    async fn change_coordinators(
        &self,
        wanted: Option<Vec<(Place, bool)>>,
        force: bool,
    ) -> Outcome<String> {
        let coordinators = &self.connection.coordinators;
        let before = coordinators.file();
        let wanted = match wanted {
            Some(wanted) => {
                if let Some((place, _)) =
                    wanted.iter().find(|(_, is_tls)| *is_tls && !before.is_tls)
                {
                    return Err(format!(
                        "{place}:tls: the cluster file does not ask for TLS; see Certificates in docs/security.md"
                    ));
                }
                let wanted: Vec<Place> = wanted.into_iter().map(|(place, _)| place).collect();
                if let Some(loss) = each_is_needed(before.coordinators.len(), &wanted) {
                    let workers = registered(&self.connection, &[]).await?.workers;
                    let is_wanted = force || !management::are_on_several_machines(&workers);
                    refuse_loss(&loss, "coordinators", is_wanted)?;
                }
                wanted
            }
            None => {
                let best = self.best_coordinators(&before.coordinators).await?;
                let same =
                    best.iter().collect::<BTreeSet<_>>() == before.coordinators.iter().collect();
                if same && !coordinators::one_is_lost(&self.connection.transport, &before).await {
                    return Ok("The coordinators stay: they suit best".into());
                }
                let workers = registered(&self.connection, &[]).await?.workers;
                let is_on_several = management::are_on_several_machines(&workers);
                refuse_fewer(before.coordinators.len(), &best, is_on_several)?;
                best
            }
        };
        loop {
            let leader = self.connection.controller().await?;
            if coordinators.file().number() > before.number() {
                // This program may end before its background task writes the file.
                self.connection.update_cluster_file().await;
                let file = coordinators.file();
                return Ok(format!(
                    "Coordinators changed: {file}{}",
                    few(before.coordinators.len(), &file)
                ));
            }
            let request = ChangeCoordinators {
                coordinators: wanted.clone(),
            };
            let endpoint = leader.controller.endpoint::<ChangeCoordinators>();
            match self.connection.transport.call(&endpoint, request).await {
                Ok(reply) if !reply.refusal.is_empty() => return Err(reply.refusal),
                Ok(_) => {}
                Err(Error::permission_denied) => {
                    let refusal = self
                        .connection
                        .explain_refusal(&leader, "change coordinators");
                    return Err(refusal.await);
                }
                Err(_) => plinth_runtime::sleep(LOOK_INTERVAL).await,
            }
        }
    }

    /// Waits without a time limit until the excluded processes hold nothing. An interrupt ends the wait and undoes
    /// nothing.
    async fn wait_until_unneeded(
        &self,
        excluded: &[Target],
        moved: Option<String>,
    ) -> Outcome<Answer> {
        let mut shown: BTreeSet<SocketAddr> = BTreeSet::new();
        let (mut enough, mut lack_is_told) = (plinth_runtime::now(), false);
        loop {
            let (workers, info) = (self.connection.workers().await?, self.cluster_info().await?);
            let database = &self.connection.database;
            let needed = management::still_needed(database, &workers, &info.log_system).await?;
            if needed.is_empty() {
                // Somebody may have come during the wait.
                let moved = match moved {
                    None => self.let_others_coordinate(excluded).await?,
                    moved => moved,
                };
                let warning = self.warn_of_needed_coordinators(excluded, &workers);
                return match warning.await {
                    none if none.is_empty() => {
                        let moved = moved.map_or(String::new(), |line| format!("\n{line}"));
                        said(format!(
                            "Excluded; nothing is left on them, and they can be stopped{moved}"
                        ))
                    }
                    warning => said(format!("Excluded; nothing is left on them{warning}")),
                };
            }
            if needed != shown {
                if shown.is_empty() && distribution::read(database).await?.is_off() {
                    plinth_terminal::say!(
                        "data distribution is off, so that no data leaves; `datadistribution on' switches it on"
                    );
                }
                let list: Vec<String> = needed.iter().map(SocketAddr::to_string).collect();
                plinth_terminal::say!("waiting for data to leave {}", list.join(", "));
                shown = needed;
            }
            match management::lacks_processes(database, &workers).await? {
                None => (enough, lack_is_told) = (plinth_runtime::now(), false),
                // A new controller may not know all of them yet.
                Some(lack) => {
                    if !lack_is_told && enough.elapsed() >= registration_limit(&self.connection) {
                        plinth_terminal::say!(
                            "no data leaves: {lack}; it does when there are more, and `include' calls it off"
                        );
                        lack_is_told = true;
                    }
                }
            }
            plinth_runtime::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Compares all replicas, without a time limit. Fails if replicas differ or not all of them can be read.
    pub(super) async fn check_consistency(&self) -> Outcome<Answer> {
        let bar = progress::bar(0, "comparing");
        let mut comparison = Comparison::new(&self.connection.transport, &self.connection.database);
        while comparison.next().is_some() {
            comparison.step().await;
            bar.set_message(bytes_of(&comparison.compared));
            bar.tick();
        }
        bar.finish_and_clear();
        let compared = &comparison.compared;
        if let Some(first) = compared.differences.first() {
            let count = compared.differences.len();
            return Err(format!("{first}; {count} pages differ in all"));
        }
        if compared.skipped > 0 {
            return Err(format!(
                "not all replicas of {} shards can be read; {} are the same",
                compared.skipped,
                bytes_of(compared)
            ));
        }
        said(format!("All replicas are the same: {}", bytes_of(compared)))
    }

    pub(super) async fn cluster_info(&self) -> Outcome<ClusterInfo> {
        let asked = GetClusterInfo { known: 0 };
        self.connection
            .ask_controller(asked, "list its roles")
            .await
    }

    /// Makes the controller look at the configuration now, instead of at its next regular check.
    async fn tell_controller(&self) {
        if let Ok(leader) = self.connection.controller().await {
            let endpoint = leader.controller.endpoint::<ServersChanged>();
            let call = self.connection.transport.call(&endpoint, ServersChanged {});
            plinth_runtime::timeout(Duration::from_secs(1), call).await;
        }
    }
}

/// What is to be said of the end of exclusions, of which these were `found`.
fn included(targets: &[Target], found: &[Target]) -> Outcome<String> {
    let others = targets.iter().filter(|target| !found.contains(target));
    let others: Vec<String> = others.map(Target::to_string).collect();
    let others = others.join(", ");
    match (found.is_empty(), targets.is_empty(), others.is_empty()) {
        (true, true, _) => Ok("Nobody was excluded; nothing has changed".into()),
        (true, false, _) => Err(format!(
            "{others} was not excluded; nothing has changed; `exclude' lists what is"
        )),
        (false, _, true) => Ok("Included".into()),
        (false, _, false) => Ok(format!(
            "Included; {others} was not excluded; `exclude' lists what is"
        )),
    }
}

/// Nobody who asks for the best coordinators means fewer of them. Fewer are not advised where each would be needed.
fn refuse_fewer(now: usize, best: &[Place], is_on_several_machines: bool) -> Outcome<()> {
    if best.len() >= now {
        return Ok(());
    }
    let (there, left) = (count_of(now), best.len());
    let is_bad = is_on_several_machines && each_is_needed(now, best).is_some();
    let best: Vec<String> = best.iter().map(Place::to_string).collect();
    let instead = match best.is_empty() {
        true => String::new(),
        false if is_bad => "; `coordinators force IP:PORT…' makes them fewer".into(),
        false => format!("; `coordinators {}' makes it {left}", best.join(" ")),
    };
    Err(format!(
        "there are {there}, and of the processes that run and can be one, each in a fault domain of its own, there \
         would be {left}; nothing has changed. Start more processes{instead}"
    ))
}

fn count_of(coordinators: usize) -> String {
    match coordinators {
        1 => "1 coordinator".into(),
        many => format!("{many} coordinators"),
    }
}

/// Who makes one loss stop everything, where there are several machines that could bear it, says that he means it.
fn refuse_loss(loss: &str, statement: &str, is_wanted: bool) -> Outcome<()> {
    match is_wanted {
        true => Ok(()),
        false => Err(format!(
            "{loss}. Nothing has changed; `{statement} force …' does it"
        )),
    }
}

/// The line about a single coordinator where there were several.
fn each_is_needed(before: usize, coordinators: &[Place]) -> Option<String> {
    match coordinators {
        [only] if before > 1 => Some(format!(
            "the only coordinator is {only}: while that is down, the database stands still; there were {before}"
        )),
        [one, other] if before > 2 => Some(format!(
            "the coordinators are {one} and {other}: while either is down, the database stands still; there were \
             {before}"
        )),
        _ => None,
    }
}

/// How many of so many coordinators may fail.
fn may_fail(coordinators: usize) -> usize {
    coordinators.saturating_sub(1) / 2
}

/// A warning about an even number of coordinators, of which no more may fail than of one fewer, and about fewer than
/// there were `before`.
fn few(before: usize, file: &ClusterFile) -> String {
    let count = file.coordinators.len();
    if let Some(line) = each_is_needed(before, &file.coordinators) {
        return format!("\nWARNING: {line}");
    }
    match count {
        _ if count % 2 == 1 && count < before => format!(
            "\nWARNING: of {count} coordinators {} may fail; of {before} it was {}",
            may_fail(count),
            may_fail(before)
        ),
        _ if count.is_multiple_of(2) => format!(
            "\nWARNING: of {count} coordinators {} may fail, as of {}; name one more",
            count - file.majority(),
            count - 1
        ),
        _ => String::new(),
    }
}

fn bytes_of(compared: &Compared) -> String {
    let (rows, bytes) = (compared.rows as f64, compared.bytes as f64);
    format!("{} rows, {} bytes", grouped(rows), grouped(bytes))
}

fn list_excluded(excluded: &[Target]) -> Answer {
    let text = match excluded.is_empty() {
        true => "Nobody is excluded".into(),
        false => {
            let lines = excluded.iter().map(|target| format!("  {target}"));
            format!("Excluded are:\n{}", lines.collect::<Vec<_>>().join("\n"))
        }
    };
    let rows = excluded.iter().map(|target| vec![target.to_string()]);
    Answer::Table(text, rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_an_exclusion_that_is_none_is_told_so() {
        let target = |text: &str| Target::parse(text).expect("valid");
        let (one, other) = (target("10.0.0.1:4500"), target("10.0.0.2"));
        let both = [one.clone(), other.clone()];
        assert_eq!(included(&both, &both), Ok("Included".into()));
        assert_eq!(included(&[], &both), Ok("Included".into()));
        assert!(included(&[], &[]).is_ok_and(|text| text.starts_with("Nobody")));
        let some = included(&both, std::slice::from_ref(&one)).expect("one was");
        assert!(some.contains("10.0.0.2 was not excluded"), "{some}");
        let none = included(&[other], &[]).expect_err("it was not");
        assert!(none.contains("nothing has changed"), "{none}");
    }

    #[test]
    fn the_best_coordinators_are_never_fewer_without_being_told() {
        let at = |port| Place::At(SocketAddr::from(([10, 0, 0, 1], port)));
        assert_eq!(refuse_fewer(1, &[at(1)], true), Ok(()));
        assert_eq!(refuse_fewer(1, &[at(1), at(2), at(3)], true), Ok(()));
        let refused = refuse_fewer(3, &[at(4500)], false).expect_err("one is fewer");
        let words = [
            "there are 3 coordinators",
            "would be 1; nothing has changed",
            "`coordinators 10.0.0.1:4500'",
        ];
        for word in words {
            assert!(refused.contains(word), "{refused}");
        }
        let refused = refuse_fewer(3, &[at(4500)], true).expect_err("one is fewer");
        assert!(!refused.contains("10.0.0.1:4500"), "{refused}");
        assert!(
            refused.contains("`coordinators force IP:PORT…' makes"),
            "{refused}"
        );
        let none = refuse_fewer(1, &[], false).expect_err("none is fewer");
        assert!(none.ends_with("Start more processes"), "{none}");
    }

    #[test]
    fn an_even_number_of_coordinators_is_warned_of() {
        let warned = |places: &str| {
            few(
                1,
                &ClusterFile::parse(&format!("a:b@{places}")).expect("valid"),
            )
        };
        assert_eq!(warned("10.0.0.1:1"), "");
        assert!(warned("10.0.0.1:1,10.0.0.2:1").contains("of 2 coordinators 0 may fail, as of 1"));
        assert_eq!(warned("10.0.0.1:1,10.0.0.2:1,10.0.0.3:1"), "");
        let one = ClusterFile::parse("a:b@10.0.0.1:1").expect("valid");
        assert!(few(5, &one).contains("the only coordinator is 10.0.0.1:1"));
        assert!(few(5, &one).ends_with("there were 5"));
        let three = ClusterFile::parse("a:b@10.0.0.1:1,10.0.0.2:1,10.0.0.3:1").expect("valid");
        assert!(few(5, &three).ends_with("of 3 coordinators 1 may fail; of 5 it was 2"));
        assert_eq!(few(3, &three), "");
    }

    #[test]
    fn what_lets_one_loss_stop_everything_wants_a_word() {
        let refused = |is_wanted| refuse_loss("it stops", "configure", is_wanted);
        assert_eq!(refused(true), Ok(()));
        let line = refused(false).expect_err("nobody has said so");
        assert!(line.ends_with("`configure force …' does it"), "{line}");
    }
}
